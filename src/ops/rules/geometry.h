// Views as geometry: each function gives the type of a view of `type`, or nothing where torch
// refuses.
#pragma once

#include <optional>
#include <span>

#include "base/symbols.h"
#include "base/type.h"

namespace smelt {

using MaybeType = std::optional<TensorType>;

MaybeType viewed(SymbolTable& symbols, const TensorType& type, const Sizes& sizes);  // -1 allowed
MaybeType transposed(const TensorType& type, int64_t dim0, int64_t dim1);
MaybeType permuted(const TensorType& type, std::span<const int64_t> dims);
MaybeType expanded(SymbolTable& symbols, const TensorType& type, const Sizes& sizes);  // -1 allowed
// Bounds as Python's: absent, negative and too large ones are understood.
MaybeType sliced(SymbolTable& symbols, const TensorType& type, int64_t dim,
                 std::optional<Size> start, std::optional<Size> end, const Size& step);
MaybeType selected(SymbolTable& symbols, const TensorType& type, int64_t dim, Size index);
MaybeType unsqueezed(const TensorType& type, int64_t dim);
MaybeType squeezed(SymbolTable& symbols, const TensorType& type, std::span<const int64_t> dims);
MaybeType diagonal_of(SymbolTable& symbols, const TensorType& type, int64_t offset, int64_t dim1,
                      int64_t dim2);
MaybeType unfolded(SymbolTable& symbols, const TensorType& type, int64_t dim, const Size& size,
                   const Size& step);
MaybeType restrided(SymbolTable& symbols, const TensorType& type, Sizes sizes, Sizes strides,
                    std::optional<Size> offset);
MaybeType reinterpreted(SymbolTable& symbols, const TensorType& type,
                        DType dtype);  // the same bytes

}  // namespace smelt
