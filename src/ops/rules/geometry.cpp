#include "ops/rules/geometry.h"

#include <algorithm>
#include <numeric>

#include "ops/rules/layout.h"

namespace smelt {
namespace {

void erase_dim(TensorType& type, int dim) {
  type.sizes.erase(type.sizes.begin() + dim);
  type.strides.erase(type.strides.begin() + dim);
}

}  // namespace

MaybeType viewed(SymbolTable& symbols, const TensorType& type, const Sizes& wanted) {
  std::optional<Sizes> sizes = infer_sizes(symbols, wanted, type.numel());
  if (!sizes) return std::nullopt;
  std::optional<Sizes> strides = view_strides(symbols, type.sizes, type.strides, *sizes);
  if (!strides) return std::nullopt;
  TensorType view = type;
  view.sizes = std::move(*sizes);
  view.strides = std::move(*strides);
  return view;
}

MaybeType transposed(const TensorType& type, int64_t dim0, int64_t dim1) {
  const std::optional<int> a = wrap_dim(dim0, type.rank()), b = wrap_dim(dim1, type.rank());
  if (!a || !b) return std::nullopt;
  TensorType view = type;
  if (type.rank() > 0) {
    std::swap(view.sizes[*a], view.sizes[*b]);
    std::swap(view.strides[*a], view.strides[*b]);
  }
  return view;
}

MaybeType permuted(const TensorType& type, std::span<const int64_t> dims) {
  if (static_cast<int>(dims.size()) != type.rank()) return std::nullopt;
  TensorType view = type;
  std::vector<bool> seen(dims.size());
  for (size_t i = 0; i < dims.size(); ++i) {
    const std::optional<int> dim = wrap_dim(dims[i], type.rank());
    if (!dim || seen[*dim]) return std::nullopt;
    seen[*dim] = true;
    view.sizes[i] = type.sizes[*dim];
    view.strides[i] = type.strides[*dim];
  }
  return view;
}

MaybeType expanded(SymbolTable& symbols, const TensorType& type, const Sizes& sizes) {
  const int rank = static_cast<int>(sizes.size());
  if (type.rank() > rank) return std::nullopt;
  TensorType view = type;
  view.sizes = sizes;
  view.strides.assign(rank, Size(0));
  for (int i = rank - 1; i >= 0; --i) {
    const int dim = type.rank() - rank + i;
    const bool open = sizes[i].is(-1);
    if (open && dim < 0) return std::nullopt;
    if (!open && less(symbols, sizes[i], 0)) return std::nullopt;
    if (type.rank() == 0) continue;
    const Size size = dim >= 0 ? type.sizes[dim] : Size(1);
    const Size stride = dim >= 0 ? type.strides[dim] : view.sizes[i + 1] * view.strides[i + 1];
    if (open || equal(symbols, size, sizes[i])) {
      view.sizes[i] = size;
      view.strides[i] = stride;
    } else if (!equal(symbols, size, 1)) {
      return std::nullopt;
    }
  }
  return view;
}

MaybeType sliced(SymbolTable& symbols, const TensorType& type, int64_t dim_arg,
                 std::optional<Size> start_arg, std::optional<Size> end_arg, const Size& step) {
  const std::optional<int> dim = wrap_dim(dim_arg, type.rank());
  if (type.rank() == 0 || !dim || !less(symbols, 0, step)) return std::nullopt;
  const Size size = type.sizes[*dim];
  Size start = start_arg.value_or(0);
  Size end = end_arg.value_or(INT64_MAX);
  if (end.is(INT64_MAX)) end = size;
  if (less(symbols, start, 0)) start = start + size;
  if (less(symbols, end, 0)) end = end + size;
  if (less(symbols, start, 0)) {
    start = 0;
  } else if (!less(symbols, start, size)) {
    start = size;
  }
  if (less(symbols, end, start)) {
    end = start;
  } else if (!less(symbols, end, size)) {
    end = size;
  }
  TensorType view = type;
  view.offset = type.offset + start * type.strides[*dim];
  view.sizes[*dim] = floor_div(end - start + step - 1, step);
  view.strides[*dim] = type.strides[*dim] * step;
  return view;
}

MaybeType selected(SymbolTable& symbols, const TensorType& type, int64_t dim_arg, Size index) {
  const std::optional<int> dim = wrap_dim(dim_arg, type.rank());
  if (type.rank() == 0 || !dim) return std::nullopt;
  if (less(symbols, index, 0)) index = index + type.sizes[*dim];
  if (less(symbols, index, 0) || !less(symbols, index, type.sizes[*dim])) return std::nullopt;
  TensorType view = type;
  view.offset = type.offset + index * type.strides[*dim];
  erase_dim(view, *dim);
  return view;
}

MaybeType unsqueezed(const TensorType& type, int64_t dim_arg) {
  const std::optional<int> dim = wrap_dim(dim_arg, type.rank() + 1);
  if (!dim) return std::nullopt;
  TensorType view = type;
  const Size stride = *dim < type.rank() ? type.sizes[*dim] * type.strides[*dim] : Size(1);
  view.sizes.insert(view.sizes.begin() + *dim, Size(1));
  view.strides.insert(view.strides.begin() + *dim, stride);
  return view;
}

MaybeType squeezed(SymbolTable& symbols, const TensorType& type, std::span<const int64_t> dims) {
  std::vector<bool> chosen(std::max(type.rank(), 1));
  for (int64_t dim_arg : dims) {
    const std::optional<int> dim = wrap_dim(dim_arg, type.rank());
    if (!dim || chosen[*dim]) return std::nullopt;
    chosen[*dim] = true;
  }
  TensorType view = type;
  for (int d = type.rank() - 1; d >= 0; --d) {
    if (chosen[d] && equal(symbols, type.sizes[d], 1)) erase_dim(view, d);
  }
  return view;
}

MaybeType diagonal_of(SymbolTable& symbols, const TensorType& type, int64_t offset, int64_t dim1,
                      int64_t dim2) {
  const std::optional<int> a = wrap_dim(dim1, type.rank()), b = wrap_dim(dim2, type.rank());
  if (!a || !b || *a == *b) return std::nullopt;
  const Size rows = type.sizes[*a] + std::min<int64_t>(offset, 0);
  const Size columns = type.sizes[*b] - std::max<int64_t>(offset, 0);
  Size length = less(symbols, columns, rows) ? columns : rows;
  if (!less(symbols, 0, length)) length = 0;
  TensorType view = type;
  if (!length.is(0)) {
    view.offset =
        type.offset + (offset >= 0 ? type.strides[*b] * offset : type.strides[*a] * -offset);
  }
  erase_dim(view, std::max(*a, *b));
  erase_dim(view, std::min(*a, *b));
  view.sizes.push_back(length);
  view.strides.push_back(type.strides[*a] + type.strides[*b]);
  return view;
}

MaybeType unfolded(SymbolTable& symbols, const TensorType& type, int64_t dim_arg, const Size& size,
                   const Size& step) {
  const std::optional<int> dim = wrap_dim(dim_arg, type.rank());
  if (!dim) return std::nullopt;
  const Size length = type.rank() == 0 ? Size(1) : type.sizes[*dim];
  if (less(symbols, size, 0) || less(symbols, length, size) || !less(symbols, 0, step))
    return std::nullopt;
  TensorType view = type;
  view.sizes.push_back(size);
  view.strides.push_back(type.rank() == 0 ? Size(1) : type.strides[*dim]);
  if (type.rank() > 0) {
    view.sizes[*dim] = floor_div(length - size, step) + 1;
    view.strides[*dim] = type.strides[*dim] * step;
  }
  return view;
}

MaybeType restrided(SymbolTable& symbols, const TensorType& type, Sizes sizes, Sizes strides,
                    std::optional<Size> offset) {
  if (sizes.size() != strides.size()) return std::nullopt;
  const auto negative = [&](const Size& size) { return less(symbols, size, 0); };
  if (std::ranges::any_of(sizes, negative) || std::ranges::any_of(strides, negative))
    return std::nullopt;
  if (offset && negative(*offset)) return std::nullopt;
  TensorType view = type;
  view.sizes = std::move(sizes);
  view.strides = std::move(strides);
  if (offset) view.offset = *offset;
  return view;
}

MaybeType reinterpreted(SymbolTable& symbols, const TensorType& type, DType dtype) {
  if (type.conj || type.neg) return std::nullopt;
  TensorType view = type;
  view.dtype = dtype;
  const int from = bytes_of(type.dtype), to = bytes_of(dtype);
  if (from == to) return view;
  if (type.rank() == 0 || !equal(symbols, type.strides.back(), 1)) return std::nullopt;
  const bool shrinks = from > to;
  const int64_t ratio = shrinks ? from / to : to / from;
  const auto scale = [&](const Size& size) {
    return shrinks ? size * ratio : floor_div(size, ratio);
  };
  const auto divides = [&](const Size& size) {
    return shrinks || equal(symbols, modulo(size, ratio), 0);
  };
  for (int d = 0; d + 1 < type.rank(); ++d) {
    if (!divides(type.strides[d])) return std::nullopt;
    view.strides[d] = scale(type.strides[d]);
  }
  if (!divides(type.sizes.back()) || !divides(type.offset)) return std::nullopt;
  view.sizes.back() = scale(type.sizes.back());
  view.offset = scale(type.offset);
  return view;
}

}  // namespace smelt
