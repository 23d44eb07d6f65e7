// Sizes compared and strides computed: how torch names a tensor's layout and which strides a new
// tensor gets. Functions that take a SymbolTable may ask it about symbolic sizes, which can leave a
// guard.
#pragma once

#include <optional>
#include <span>

#include "base/arg.h"
#include "base/symbols.h"
#include "base/type.h"

namespace smelt {

// torch's numbering of memory formats.
inline constexpr MemoryFormat kContiguous{0};
inline constexpr MemoryFormat kPreserve{1};
inline constexpr MemoryFormat kChannelsLast{2};
inline constexpr MemoryFormat kChannelsLast3d{3};

bool ask(SymbolTable& symbols, const Size& a, Relation relation, const Size& b);
inline bool equal(SymbolTable& s, const Size& a, const Size& b) {
  return ask(s, a, Relation::eq, b);
}
inline bool less(SymbolTable& s, const Size& a, const Size& b) {
  return ask(s, a, Relation::lt, b);
}
bool equal(SymbolTable& symbols, std::span<const Size> a, std::span<const Size> b);
bool is_empty(SymbolTable& symbols, std::span<const Size> sizes);  // has no elements

// The common size of two broadcast dimensions or shapes; nothing if they don't fit.
std::optional<Size> broadcast(SymbolTable& symbols, const Size& a, const Size& b);
std::optional<Sizes> broadcast(SymbolTable& symbols, std::span<const Size> a,
                               std::span<const Size> b);
// Can a tensor of sizes `from` be expanded to `to`?
bool expandable(SymbolTable& symbols, std::span<const Size> from, std::span<const Size> to);

// A dimension counted from the end made one counted from the front; a scalar takes 0 and -1.
std::optional<int> wrap_dim(int64_t dim, int rank);

bool is_contiguous(SymbolTable& symbols, const TensorType& type);
// Its strides are written as row-major ones are; no symbol is asked.
bool is_row_major(const TensorType& type);
bool is_channels_last(SymbolTable& symbols, const TensorType& type);  // contiguous in that order
bool is_channels_last_3d(SymbolTable& symbols, const TensorType& type);
// Every element has its own place and there are no gaps (torch: non-overlapping and dense).
bool is_dense(SymbolTable& symbols, const TensorType& type);
// The format the strides suggest (torch: suggest_memory_format).
MemoryFormat suggested_format(SymbolTable& symbols, const TensorType& type);

// Strides of a new tensor of that format; nothing where the rank does not allow it.
std::optional<Sizes> format_strides(std::span<const Size> sizes, MemoryFormat format);
// Strides that keep the order of the dimensions and leave no gaps (torch: infer_dense_strides).
Sizes squeezed_strides(SymbolTable& symbols, const TensorType& type);
// Strides of empty_like(type) with the format "preserve".
Sizes preserved_strides(SymbolTable& symbols, const TensorType& type);
// Strides under which the same memory has the new sizes; nothing where a copy would be needed.
std::optional<Sizes> view_strides(SymbolTable& symbols, std::span<const Size> sizes,
                                  std::span<const Size> strides, std::span<const Size> new_sizes);
// Puts the product the others leave in the place of a -1; nothing if that does not fit.
std::optional<Sizes> infer_sizes(SymbolTable& symbols, std::span<const Size> wanted,
                                 const Size& numel);

// A new tensor: contiguous, or with the strides given; offset 0, no lazy bits.
TensorType fresh(DType dtype, Device device, Sizes sizes);
TensorType fresh(DType dtype, Device device, Sizes sizes, Sizes strides);
inline TensorType fresh_like(const TensorType& like, Sizes sizes) {
  return fresh(like.dtype, like.device, std::move(sizes));
}
// empty_like(type): the same sizes, strides preserved.
TensorType preserved(SymbolTable& symbols, const TensorType& type);
TensorType preserved(SymbolTable& symbols, const TensorType& type, DType dtype);
// A copy of the whole storage seen through the same view, offset included (torch:
// clone_preserve_strides), or a plain clone where elements share a place.
TensorType exact_clone(SymbolTable& symbols, const TensorType& type);

}  // namespace smelt
