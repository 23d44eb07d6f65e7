// Reads at computed places: indexing, gathering, concatenation, triangles.
#include <algorithm>
#include <numeric>

#include "ops/meanings/families.h"
#include "ops/meanings/index_places.h"
#include "ops/meanings/update_rules.h"
#include "ops/rules/element.h"

namespace smelt {
namespace {

// Concatenations of more parts are chains of comparisons no kernel should make.
constexpr size_t kMostParts = 8;

// gather(self, dim, index)
Expr gather(ElementQuery& q) {
  const TensorType& self = q.type(0);
  const int dim = dim_of(q.integer(1), self.rank());
  Indices place = q.at();
  place[dim] = q.checked_index(q.load(q.value(2), q.at()), self.sizes[dim], false);
  return q.load(q.value(0), place);
}

// index_select(self, dim, index)
Expr index_select(ElementQuery& q) {
  const TensorType& self = q.type(0);
  const int dim = dim_of(q.integer(1), self.rank());
  Indices along;
  if (q.type(2).rank() == 1) along.push_back(q.at()[dim]);
  Indices place = q.at();
  place[dim] = q.checked_index(q.load(q.value(2), along), self.sizes[dim], false);
  return q.load(q.value(0), place);
}

// (self, dim, index)
Decision allows_indexed_dim(const NodeReader& q) {
  if (q.type(0).rank() == 0 || q.type(2).rank() == 0)
    return Decision::forbid("an index into a scalar, or a scalar index");
  if (!is_index(q.type(2))) return Decision::forbid("not an index dtype");
  if (!all_certainly_positive(q.type(0).sizes)) return Decision::forbid("an index into nothing");
  return Decision::allow();
}

// embedding(weight, indices, ...)
Expr embedding(ElementQuery& q) {
  Indices where = q.at();
  const Index column = where.back();
  where.pop_back();
  const Index row = q.checked_index(q.load(q.value(1), where), q.type(0).sizes[0], false);
  return q.load(q.value(0), {row, column});
}

Decision allows_embedding(const NodeReader& q) {
  if (!is_index(q.type(1))) return Decision::forbid("not an index dtype");
  if (!all_certainly_positive(q.type(0).sizes)) return Decision::forbid("an empty weight");
  return Decision::allow();
}

// take(self, index): the elements of self as one row.
Expr take(ElementQuery& q) {
  const Sizes& sizes = q.type(0).sizes;
  const Index flat = q.checked_index(q.load(q.value(1), q.at()), product(sizes), true);
  return q.load(q.value(0), loops::unravel(flat, sizes, q.extents()));
}

Decision allows_take(const NodeReader& q) {
  if (!is_index(q.type(1))) return Decision::forbid("not an index dtype");
  if (!all_certainly_positive(q.type(0).sizes)) return Decision::forbid("an index into nothing");
  return Decision::allow();
}

// index(self, indices)
Expr index(ElementQuery& q) { return q.load(q.value(0), indexed_place(q, q.result().sizes)); }

// index_put(self, [mask], value, accumulate): a scalar where the mask says.
Expr masked_put(ElementQuery& q) {
  const ArgList& list = q.arg(1).get<ArgList>();
  size_t first = 0;
  while (!list[first].is<Ref>()) ++first;
  const ValueId mask = list[first].get<Ref>().id;
  const auto begin = q.at().begin() + first;
  const Indices at(begin, begin + q.graph().type(mask).rank());
  const DType between = accumulate_of(q.result().dtype);
  const Expr self = q.load(q.value(0), q.at()).to(between);
  const Expr value = q.load(q.value(2), Indices(q.type(2).sizes.size(), 0)).to(between);
  return select(q.load(mask, at), q.boolean(3) ? self + value : value, self);
}

Decision allows_masked_put(const NodeReader& q) {
  const std::vector<ValueId> masks = q.values(1);
  if (masks.size() != 1 || q.graph().type(masks[0]).dtype != DType::b8)
    return Decision::forbid("a write to computed places");
  if (!q.type(2).numel().is(1)) return Decision::forbid("the values depend on the mask");
  return Decision::allow();
}

// cat(tensors, dim)
bool is_skipped(const TensorType& type) { return type.rank() == 1 && type.sizes[0].is(0); }

// The largest block that divides all parts: it lies in one part, so that a kernel whose loop is
// split there chooses once per block. 1 where a size is not known.
Size common_block(const ElementQuery& q, int dim) {
  int64_t block = 0;
  for (ValueId part : q.values(0)) {
    const TensorType& type = q.graph().type(part);
    if (is_skipped(type)) continue;
    if (!type.sizes[dim].is_known()) return 1;
    block = std::gcd(block, type.sizes[dim].known());
  }
  return block;
}

Expr concatenation(ElementQuery& q) {
  const DType dtype = q.result().dtype, between = accumulate_of(dtype);
  const int dim = dim_of(q.integer(1), q.result().rank());
  const Size block = common_block(q, dim);
  const Index number = quotient(q.at()[dim], block, q.extents());
  const Index inside = remainder(q.at()[dim], block, q.extents());
  Expr element;
  Size end = q.result().sizes[dim];
  // From the last part on: each stands before what was chosen so far.
  std::vector<ValueId> parts = q.values(0);
  std::reverse(parts.begin(), parts.end());
  for (ValueId part : parts) {
    const TensorType& type = q.graph().type(part);
    if (is_skipped(type) || type.sizes[dim].is(0)) continue;
    const Size begin = end - type.sizes[dim];
    Indices place = q.at();
    const Index first = number - Index(floor_div(begin, block));
    place[dim] = clamped_index(q, first, floor_div(type.sizes[dim], block)) * block + inside;
    const Expr loaded = q.load(part, place).to(dtype).to(between);
    const Size blocks = floor_div(end, block);
    element = element.builder ? select(is_below(q, number, blocks), loaded, element) : loaded;
    end = begin;
  }
  return element;
}

Decision allows_concatenation(const NodeReader& q) {
  if (q.values(0).size() > kMostParts) return Decision::forbid("too many parts");
  bool any = false;
  const int dim = dim_of(q.integer(1), q.result().rank());
  for (ValueId part : q.values(0)) {
    const TensorType& type = q.graph().type(part);
    if (is_skipped(type)) continue;
    if (type.rank() != q.result().rank()) return Decision::forbid("a part of another rank");
    if (type.sizes[dim].is(0)) continue;
    if (!is_certainly_positive(type.sizes[dim])) return Decision::forbid("a part may be empty");
    any = true;
  }
  if (!any) return Decision::forbid("all parts are empty");
  return Decision::allow();
}

// stack(tensors, dim)
Expr stack(ElementQuery& q) {
  const DType dtype = q.result().dtype, between = accumulate_of(dtype);
  const int dim = dim_of(q.integer(1), q.result().rank());
  Indices place = q.at();
  place.erase(place.begin() + dim);
  const std::vector<ValueId> parts = q.values(0);
  const Expr which = q.index_value(q.at()[dim]);
  Expr element = q.load(parts.back(), place).to(dtype).to(between);
  for (size_t i = parts.size() - 1; i-- > 0;) {
    const Expr loaded = q.load(parts[i], place).to(dtype).to(between);
    element = select(which == static_cast<double>(i), loaded, element);
  }
  return element;
}

Decision allows_stack(const NodeReader& q) {
  if (q.values(0).size() > kMostParts) return Decision::forbid("too many parts");
  return Decision::allow();
}

// tril, triu (self, diagonal)
template <bool upper>
Expr triangle(ElementQuery& q) {
  const Expr x = q.operand(0).to(accumulate_of(q.result().dtype));
  const size_t rank = q.at().size();
  const Index across = q.at()[rank - 1] - q.at()[rank - 2];
  const Size diagonal = q.size_at(1);
  const Expr inside = upper ? is_at_least(q, across, diagonal) : is_below(q, across, diagonal + 1);
  return select(inside, x, 0.0);
}

constexpr Meaning gathering(std::string_view name, ElementRule rule,
                            Decision (*allows)(const NodeReader&), int cost = 3) {
  return elsewhere(Pattern::gather, name, rule, allows, cost);
}

// One value where a mask is true; at the places of index tensors it is an update.
constexpr Meaning putting(std::string_view name) {
  Meaning row = gathering(name, masked_put, allows_masked_put);
  row.update = &kIndexPut;
  return row;
}

constexpr Meaning kRows[] = {
    gathering("aten::_unsafe_index.Tensor", index, allows_indices),
    putting("aten::_unsafe_index_put"),
    gathering("aten::cat", concatenation, allows_concatenation, 4),
    gathering("aten::embedding", embedding, allows_embedding),
    gathering("aten::gather", gather, allows_indexed_dim),
    gathering("aten::index.Tensor", index, allows_indices),
    putting("aten::index_put"),
    gathering("aten::index_select", index_select, allows_indexed_dim),
    gathering("aten::stack", stack, allows_stack, 4),
    gathering("aten::take", take, allows_take, 8),
    gathering("aten::tril", triangle<false>, nullptr, 2),
    gathering("aten::triu", triangle<true>, nullptr, 2),
};

}  // namespace

std::span<const Meaning> gather_meanings() { return kRows; }

}  // namespace smelt
