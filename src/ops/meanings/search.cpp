// Places in sorted rows: a binary search is as many steps for every element, so it is written out.
#include "ops/meanings/families.h"
#include "ops/rules/element.h"

namespace smelt {
namespace {

Expr half_of(Expr a) { return apply(loops::Op::shift_right, a, a.like(1)); }

// The first place in a row of `length` whose element is not before `value`: the steps of torch's
// loops, so that rows which are not sorted, and NaN, give what they give there.
template <typename Load>
Expr searched(ElementQuery& q, Expr value, int64_t length, bool right, const Load& load) {
  const DType wide = accumulate_of(value.dtype());
  value = value.to(wide);
  Expr begin = q.constant(DType::i64, int64_t{0}), end = q.constant(DType::i64, length);
  for (int64_t left = length; left > 0; left /= 2) {
    const Expr middle = begin + half_of(end - begin);
    const Expr place = min(middle, static_cast<double>(length - 1));
    const Expr element = load(q.builder().as_index(place.value)).to(wide);
    const Expr stays = right ? element > value : element >= value;
    const Expr behind = (begin < end) & !stays;
    begin = select(behind, middle + 1.0, begin);
    end = select(behind, end, middle);
  }
  return begin;
}

// bucketize(self, boundaries, out_int32, right)
Expr bucketize(ElementQuery& q) {
  return searched(q, q.load(q.value(0), q.at()), q.type(1).sizes[0].known(), q.boolean(3),
                  [&](const Index& at) { return q.load(q.value(1), {at}); });
}

// searchsorted(sorted_sequence, self, out_int32, right, side, sorter): rows of all dimensions but
// the last, or one row for all.
Expr searchsorted(ElementQuery& q) {
  const TensorType& rows = q.type(0);
  const bool right = q.is_none(4) ? q.boolean(3) : q.text(4) == "right";
  return searched(q, q.load(q.value(1), q.at()), rows.sizes.back().known(), right,
                  [&](const Index& at) {
                    Indices place(q.at().begin(), q.at().begin() + (rows.rank() - 1));
                    place.push_back(at);
                    return q.load(q.value(0), place);
                  });
}

template <size_t rows, size_t value>
Decision allows_search(const NodeReader& q) {
  if (!q.is_tensor(value)) return Decision::forbid("one number");
  if (q.type(rows).dtype != q.type(value).dtype) return Decision::forbid("dtypes that differ");
  const auto length = q.type(rows).sizes.back().as_known();
  if (!length || *length < 1) return Decision::forbid("the length of the rows is not known");
  return Decision::allow();
}

Decision allows_searchsorted(const NodeReader& q) {
  if (!q.is_none(5)) return Decision::forbid("rows that are sorted by a permutation");
  return allows_search<0, 1>(q);
}

constexpr Meaning searching(std::string_view name, ElementRule rule,
                            Decision (*allows)(const NodeReader&)) {
  return elsewhere(Pattern::gather, name, rule, allows, 2 * kCompound);
}

constexpr Meaning kRows[] = {
    searching("aten::bucketize.Tensor", bucketize, allows_search<1, 0>),
    searching("aten::searchsorted.Tensor", searchsorted, allows_searchsorted),
};

}  // namespace

std::span<const Meaning> search_meanings() { return kRows; }

}  // namespace smelt
