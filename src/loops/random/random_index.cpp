#include "loops/random/random_index.h"

#include <algorithm>
#include <numeric>

namespace smelt::loops {
namespace {

// Strides for dimensions that lie in memory in the given order, the last one innermost.
Sizes strides_for(std::span<const Size> sizes, std::span<const int> order) {
  Sizes strides(sizes.size());
  Size stride = 1;
  for (size_t place = order.size(); place-- > 0;) {
    strides[order[place]] = stride;
    stride = stride * max(sizes[order[place]], 1);
  }
  return strides;
}

}  // namespace

Index RandomIndex::any(int dims) {
  int64_t form = random_.below(10);
  if (form < 4) return affine(dims);
  if (form < 6) return distinct(dims);
  return form < 9 ? reshaped(dims) : divided(dims);
}

Size RandomIndex::elements(const Index& index) const {
  std::optional<Index::SizeRange> range = index.size_range(builder_.extents());
  return range ? range->high + 1 : Size(1);
}

Index RandomIndex::distinct(int first, int last) {
  Extents extents = builder_.extents();
  std::vector<int> order(last - first);
  std::iota(order.begin(), order.end(), 0);
  if (random_.chance(40)) {
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random_.below(i)]);
  }
  Sizes strides = strides_for(extents.dims.subspan(first, last - first), order);
  Size step = random_.chance(15) ? random_.between(2, 3) : 1;
  Index index = random_.chance(15) ? random_.between(1, 5) : 0;
  for (int d = first; d < last; ++d) {
    Size stride = strides[d - first] * step;
    Index at = Index::dim(d);
    if (random_.chance(8)) at = Index(max(extents.dims[d], 1) - 1) - at;
    index = index + at * stride;
  }
  return index;
}

// Some dimensions do not count, which makes it a broadcast.
Index RandomIndex::affine(int dims) {
  Index index = distinct(dims);
  Indices at;
  for (int d = 0; d < dims; ++d) at.push_back(random_.chance(35) ? Index(0) : Index::dim(d));
  return index.substitute(at);
}

// The points as one row, cut into other dimensions, and those in another order.
Index RandomIndex::reshaped(int dims) {
  Extents extents = builder_.extents();
  Indices at;
  for (int d = 0; d < dims; ++d) at.push_back(Index::dim(d));
  Index flat = ravel(at, extents.dims.first(dims));
  Size points = product(extents.dims.first(dims));
  Sizes sizes;
  for (int64_t factor : {2, 3, 7, 4}) {
    if (!random_.chance(50)) continue;
    if (std::optional<Size> rest = even_quotient(points, factor); rest && !rest->is(0)) {
      sizes.push_back(factor);
      points = *rest;
    }
  }
  sizes.insert(sizes.begin() + random_.below(static_cast<int64_t>(sizes.size()) + 1), points);
  std::vector<int> order(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  if (random_.chance(70)) std::reverse(order.begin(), order.end());
  return linear(unravel(flat, sizes, extents), strides_for(sizes, order));
}

// Each point stands for several, or they begin again after some.
Index RandomIndex::divided(int dims) {
  Index index = distinct(dims);
  int64_t divisor = random_.between(2, 6);
  return random_.chance(50) ? quotient(index, divisor, builder_.extents())
                            : remainder(index, divisor, builder_.extents());
}

}  // namespace smelt::loops
