#include "ops/rules/layout.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace smelt {
namespace {

constexpr std::array kOrder2d = {1, 3, 2, 0};
constexpr std::array kOrder3d = {1, 4, 3, 2, 0};

// Contiguous when the dimensions are walked in that order, fastest first.
bool contiguous_in_order(SymbolTable& s, const TensorType& type, std::span<const int> order) {
  if (type.sizes.size() != order.size()) return false;
  Size expected = 1;
  for (int d : order) {
    if (equal(s, type.sizes[d], 1)) continue;
    if (!equal(s, type.strides[d], expected)) return false;
    expected = expected * type.sizes[d];
  }
  return true;
}

// torch: is_channels_last_strides_*. Ambiguous strides count as contiguous, hence the odd
// conditions.
bool looks_channels_last(SymbolTable& s, const TensorType& type, std::span<const int> order) {
  if (type.sizes.size() != order.size()) return false;
  if (equal(s, type.strides[1], 0)) return false;
  Size least = 0;
  for (int d : order) {
    if (equal(s, type.sizes[d], 0) || less(s, type.strides[d], least)) return false;
    if (d == 0 && equal(s, least, type.strides[1])) return false;
    least = type.strides[d];
    if (less(s, 1, type.sizes[d])) least = least * type.sizes[d];
  }
  return true;
}

Sizes strides_in_order(std::span<const Size> sizes, std::span<const int> order) {
  Sizes strides(sizes.size());
  Size next = 1;
  for (int d : order) {
    strides[d] = next;
    next = next * sizes[d];
  }
  return strides;
}

}  // namespace

bool ask(SymbolTable& symbols, const Size& a, Relation relation, const Size& b) {
  if (a.is_known() && b.is_known()) return compare(a.known(), relation, b.known());
  return symbols.holds(a, relation, b);
}

bool equal(SymbolTable& symbols, std::span<const Size> a, std::span<const Size> b) {
  return std::ranges::equal(a, b,
                            [&](const Size& x, const Size& y) { return equal(symbols, x, y); });
}

bool is_empty(SymbolTable& symbols, std::span<const Size> sizes) {
  return std::ranges::any_of(sizes, [&](const Size& size) { return equal(symbols, size, 0); });
}

std::optional<Size> broadcast(SymbolTable& symbols, const Size& a, const Size& b) {
  if (a == b || equal(symbols, b, 1)) return a;
  if (equal(symbols, a, 1)) return b;
  if (!equal(symbols, a, b)) return std::nullopt;
  return b.is_known() ? b : a;
}

std::optional<Sizes> broadcast(SymbolTable& symbols, std::span<const Size> a,
                               std::span<const Size> b) {
  if (a.size() < b.size()) std::swap(a, b);
  Sizes sizes(a.begin(), a.end());
  const size_t lead = a.size() - b.size();
  for (size_t i = 0; i < b.size(); ++i) {
    std::optional<Size> size = broadcast(symbols, a[lead + i], b[i]);
    if (!size) return std::nullopt;
    sizes[lead + i] = *size;
  }
  return sizes;
}

bool expandable(SymbolTable& symbols, std::span<const Size> from, std::span<const Size> to) {
  if (from.size() > to.size()) return false;
  const size_t lead = to.size() - from.size();
  for (size_t i = 0; i < from.size(); ++i) {
    if (!equal(symbols, from[i], 1) && !equal(symbols, from[i], to[lead + i])) return false;
  }
  return true;
}

std::optional<int> wrap_dim(int64_t dim, int rank) {
  const int64_t range = std::max(rank, 1);
  if (dim < -range || dim >= range) return std::nullopt;
  return static_cast<int>(dim < 0 ? dim + range : dim);
}

bool is_row_major(const TensorType& type) { return type.strides == contiguous_strides(type.sizes); }

bool is_contiguous(SymbolTable& symbols, const TensorType& type) {
  if (is_empty(symbols, type.sizes)) return true;
  Size expected = 1;
  for (int d = type.rank() - 1; d >= 0; --d) {
    if (equal(symbols, type.sizes[d], 1)) continue;
    if (!equal(symbols, type.strides[d], expected)) return false;
    expected = expected * type.sizes[d];
  }
  return true;
}

bool is_channels_last(SymbolTable& symbols, const TensorType& type) {
  return contiguous_in_order(symbols, type, kOrder2d);
}

bool is_channels_last_3d(SymbolTable& symbols, const TensorType& type) {
  return contiguous_in_order(symbols, type, kOrder3d);
}

bool is_dense(SymbolTable& symbols, const TensorType& type) {
  if (is_contiguous(symbols, type)) return true;
  std::vector<int> open;  // dimensions that still need their place
  for (int d = 0; d < type.rank(); ++d) {
    if (!equal(symbols, type.sizes[d], 1)) open.push_back(d);
  }
  Size expected = 1;
  while (!open.empty()) {
    auto next = std::ranges::find_if(
        open, [&](int d) { return equal(symbols, type.strides[d], expected); });
    if (next == open.end()) return false;
    expected = expected * type.sizes[*next];
    open.erase(next);
  }
  return true;
}

MemoryFormat suggested_format(SymbolTable& symbols, const TensorType& type) {
  if (looks_channels_last(symbols, type, kOrder2d)) return kChannelsLast;
  if (looks_channels_last(symbols, type, kOrder3d)) return kChannelsLast3d;
  return kContiguous;
}

std::optional<Sizes> format_strides(std::span<const Size> sizes, MemoryFormat format) {
  if (format == kContiguous) return contiguous_strides(sizes);
  if (format == kChannelsLast && sizes.size() == 4) return strides_in_order(sizes, kOrder2d);
  if (format == kChannelsLast3d && sizes.size() == 5) return strides_in_order(sizes, kOrder3d);
  return std::nullopt;
}

Sizes squeezed_strides(SymbolTable& symbols, const TensorType& type) {
  const int rank = type.rank();
  std::vector<int> order(rank);
  std::iota(order.rbegin(), order.rend(), 0);
  // 1: a belongs after b, -1: before, 0: cannot tell.
  const auto compare = [&](int a, int b) {
    const Size &left = type.strides[a], &right = type.strides[b];
    if (equal(symbols, left, 0) || equal(symbols, right, 0)) return 0;
    if (less(symbols, left, right)) return -1;
    if (less(symbols, right, left)) return 1;
    return less(symbols, type.sizes[b], type.sizes[a]) ? 1 : 0;
  };
  for (int i = 1; i < rank; ++i) {
    int at = i;
    for (int j = i - 1; j >= 0; --j) {
      const int comparison = compare(order[j], order[at]);
      if (comparison < 0) break;
      if (comparison == 0) continue;
      std::swap(order[j], order[at]);
      at = j;
    }
  }
  Sizes strides(rank);
  Size next = 1;
  for (int d : order) {
    strides[d] = next;
    if (less(symbols, 1, type.sizes[d])) next = next * type.sizes[d];
  }
  return strides;
}

Sizes preserved_strides(SymbolTable& symbols, const TensorType& type) {
  return is_dense(symbols, type) ? type.strides : squeezed_strides(symbols, type);
}

std::optional<Sizes> view_strides(SymbolTable& symbols, std::span<const Size> sizes,
                                  std::span<const Size> strides, std::span<const Size> new_sizes) {
  if (sizes.empty()) return Sizes(new_sizes.size(), Size(1));
  if (is_empty(symbols, sizes)) {
    if (equal(symbols, sizes, new_sizes)) return Sizes(strides.begin(), strides.end());
    return contiguous_strides(new_sizes);
  }
  Sizes result(new_sizes.size());
  int at = static_cast<int>(new_sizes.size()) - 1;
  // Old dimensions that lie behind one another in memory form a chunk; new ones must fill chunk
  // after chunk.
  Size chunk_stride = strides.back(), chunk = 1, filled = 1;
  for (int d = static_cast<int>(sizes.size()) - 1; d >= 0; --d) {
    chunk = chunk * sizes[d];
    const bool ends = d == 0 || (!equal(symbols, sizes[d - 1], 1) &&
                                 !equal(symbols, strides[d - 1], chunk * chunk_stride));
    if (!ends) continue;
    while (at >= 0 && (equal(symbols, new_sizes[at], 1) || less(symbols, filled, chunk))) {
      result[at] = filled * chunk_stride;
      filled = filled * new_sizes[at];
      --at;
    }
    if (!equal(symbols, filled, chunk)) return std::nullopt;
    if (d == 0) break;
    chunk_stride = strides[d - 1];
    chunk = 1;
    filled = 1;
  }
  if (at != -1) return std::nullopt;
  return result;
}

std::optional<Sizes> infer_sizes(SymbolTable& symbols, std::span<const Size> wanted,
                                 const Size& numel) {
  Sizes sizes(wanted.begin(), wanted.end());
  std::optional<size_t> open;
  Size rest = 1;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i].is(-1)) {
      if (open) return std::nullopt;
      open = i;
    } else {
      if (less(symbols, sizes[i], 0)) return std::nullopt;
      rest = rest * sizes[i];
    }
  }
  if (!open) {
    if (!equal(symbols, rest, numel)) return std::nullopt;
    return sizes;
  }
  if (equal(symbols, rest, 0)) return std::nullopt;
  const Size size = floor_div(numel, rest);
  if (!equal(symbols, size * rest, numel)) return std::nullopt;
  sizes[*open] = size;
  return sizes;
}

TensorType fresh(DType dtype, Device device, Sizes sizes) {
  Sizes strides = contiguous_strides(sizes);
  return fresh(dtype, device, std::move(sizes), std::move(strides));
}

TensorType fresh(DType dtype, Device device, Sizes sizes, Sizes strides) {
  TensorType type;
  type.dtype = dtype;
  type.device = device;
  type.sizes = std::move(sizes);
  type.strides = std::move(strides);
  return type;
}

TensorType preserved(SymbolTable& symbols, const TensorType& type) {
  return preserved(symbols, type, type.dtype);
}

TensorType preserved(SymbolTable& symbols, const TensorType& type, DType dtype) {
  return fresh(dtype, type.device, type.sizes, preserved_strides(symbols, type));
}

TensorType exact_clone(SymbolTable& symbols, const TensorType& type) {
  const auto shares_place = [&] {
    for (int d = 0; d < type.rank(); ++d) {
      if (less(symbols, 1, type.sizes[d]) && equal(symbols, type.strides[d], 0)) return true;
    }
    return false;
  };
  if (!is_dense(symbols, type) && shares_place()) return preserved(symbols, type);
  TensorType clone = fresh(type.dtype, type.device, type.sizes, type.strides);
  clone.offset = type.offset;
  return clone;
}

}  // namespace smelt
