#include "ops/rules/element.h"

#include "base/bounds.h"
#include "ops/rules/layout.h"

namespace smelt {
namespace {

// Dimensions [from, from_end) of one shape hold the elements of [to, to_end) of the other.
struct Group {
  size_t from, from_end, to, to_end;
};

// The finest groups that can be told from the sizes, so that dimensions a reshape leaves alone do
// not take part in divisions.
std::vector<Group> matching_groups(const Sizes& from, const Sizes& to) {
  std::vector<Group> groups;
  Group group{0, 0, 0, 0};
  while (group.from_end < from.size() || group.to_end < to.size()) {
    Size a = 1, b = 1;
    if (group.from_end < from.size()) a = from[group.from_end++];
    if (group.to_end < to.size()) b = to[group.to_end++];
    while (!(a == b)) {
      const bool grow_from = group.from_end < from.size() &&
                             (group.to_end >= to.size() || difference_bounds(b, a).low > 0);
      const bool grow_to = !grow_from && group.to_end < to.size() &&
                           (group.from_end >= from.size() || difference_bounds(a, b).low > 0);
      if (grow_from) {
        a = a * from[group.from_end++];
      } else if (grow_to) {
        b = b * to[group.to_end++];
      } else {
        // Not comparable: the rest is one group.
        group.from_end = from.size();
        group.to_end = to.size();
        break;
      }
    }
    groups.push_back(group);
    group.from = group.from_end;
    group.to = group.to_end;
  }
  return groups;
}

}  // namespace

bool is_one(const Graph& graph, const Size& size) {
  return size.is(1) || (!size.is_known() && graph.symbols.hint(size) == 1);
}

bool is_certainly_positive(const Size& size) { return bounds(size).low >= 1; }

bool all_certainly_positive(const Sizes& sizes) {
  for (const Size& size : sizes) {
    if (!is_certainly_positive(size)) return false;
  }
  return true;
}

int dim_of(int64_t dim, int rank) {
  const std::optional<int> wrapped = wrap_dim(dim, rank);
  SMELT_CHECK(wrapped.has_value(), "a dimension out of range");
  return *wrapped;
}

Indices broadcast_place(const Graph& graph, const Indices& at, const Sizes& result,
                        const Sizes& sizes) {
  SMELT_CHECK(sizes.size() <= at.size(), "an operand of a higher rank than the result");
  const size_t lead = at.size() - sizes.size();
  Indices place;
  for (size_t d = 0; d < sizes.size(); ++d) {
    const bool same = sizes[d] == result[lead + d];
    const bool stretched = sizes[d].is(1) || (!same && is_one(graph, sizes[d]));
    place.push_back(stretched ? Index(0) : at[lead + d]);
  }
  return place;
}

Indices reshaped_place(const Indices& at, const Sizes& from, const Sizes& sizes,
                       const loops::Extents& extents) {
  SMELT_CHECK(at.size() == from.size(), "one index per dimension");
  Indices place;
  for (const Group& group : matching_groups(from, sizes)) {
    const auto part = [](const auto& list, size_t begin, size_t end) {
      return std::span(list).subspan(begin, end - begin);
    };
    const Index flat =
        loops::ravel(part(at, group.from, group.from_end), part(from, group.from, group.from_end));
    const Indices unraveled = loops::unravel(flat, part(sizes, group.to, group.to_end), extents);
    place.insert(place.end(), unraveled.begin(), unraveled.end());
  }
  return place;
}

Index clamped_index(ElementQuery& q, const Index& index, const Size& size) {
  const std::optional<Index::Range> range = index.range(q.extents());
  if (range && size.is_known() && range->low >= 0 && range->high < size.known()) return index;
  const Expr last = q.index_value(Index(size - 1));
  const Expr place = max(min(q.index_value(index), last), 0.0);
  return q.builder().as_index(place.value);
}

Expr is_at_least(ElementQuery& q, const Index& index, const Size& bound) {
  return q.index_value(index) >= q.index_value(Index(bound));
}

Expr is_below(ElementQuery& q, const Index& index, const Size& bound) {
  return q.index_value(index) < q.index_value(Index(bound));
}

namespace {

// Do the tensors lie in memory as the result does, so that eager has one loop over all elements?
bool lie_alike(const ElementQuery& q) {
  for (size_t i = 0; i < q.size(); ++i) {
    if (!q.is_tensor(i) || q.type(i).rank() == 0) continue;
    if (q.type(i).sizes != q.result().sizes || q.type(i).strides != q.result().strides)
      return false;
  }
  return true;
}

}  // namespace

Expr as_eager_loops(ElementQuery& q, Expr by_vectors, Expr by_scalars) {
  constexpr int64_t kOneThread = 32768;  // elements; more are shared
  // Two vectors of AVX2: none of these kernels of PyTorch's is made for AVX-512.
  constexpr int64_t kBytesAtOnce = 64;
  const TensorType& result = q.result();
  if (!is_floating(result.dtype)) return by_scalars;
  const std::optional<int64_t> count = result.numel().as_known();
  if (!count) return by_vectors;
  const int64_t at_once = kBytesAtOnce / bytes_of(result.dtype);
  const int64_t in_vectors = *count - *count % at_once;
  if (in_vectors == 0) return by_scalars;
  if (in_vectors == *count || *count >= kOneThread || !lie_alike(q)) return by_vectors;
  Index place(Size(0));
  for (int d = 0; d < result.rank(); ++d) place = place + q.at()[d] * result.strides[d];
  return select(is_below(q, place, Size(in_vectors)), by_vectors, by_scalars);
}

}  // namespace smelt
