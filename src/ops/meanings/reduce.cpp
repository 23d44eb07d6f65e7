// Reductions: elements of the first argument combined over dimensions of it.
#include "ops/meanings/families.h"
#include "ops/rules/element.h"
#include "ops/rules/promotion.h"

namespace smelt {
namespace {

using loops::Reduction;

// Where an op has no such argument.
constexpr size_t kNone = 99;

// The dimensions of argument 0 that argument `dims` names: one, a list, or all where there is none.
std::vector<int> reduced_dims(const NodeReader& q, size_t dims) {
  const int rank = q.type(0).rank();
  std::vector<bool> named(rank, false);
  const std::vector<int64_t> list = q.integers(dims);
  for (int64_t dim : list) named[dim_of(dim, rank)] = true;
  if (list.empty()) named.assign(rank, true);
  std::vector<int> reduced;
  for (int d = 0; d < rank; ++d) {
    if (named[d]) reduced.push_back(d);
  }
  return reduced;
}

template <Reduction reduction, size_t dims, size_t keepdim>
ReductionForm combined(const NodeReader& q) {
  ReductionForm form;
  form.reduction = reduction;
  form.dims = reduced_dims(q, dims);
  form.keepdim = q.boolean(keepdim, false);
  form.accumulate = accumulate_of(q.type(0).dtype);
  return form;
}

// Sums and products are kept in the dtype of the result.
template <Reduction reduction, size_t dims, size_t keepdim>
ReductionForm total(const NodeReader& q) {
  ReductionForm form = combined<reduction, dims, keepdim>(q);
  form.accumulate = accumulate_of(q.result().dtype);
  return form;
}

// The greatest of bools is whether there is one that is true.
template <Reduction reduction, size_t dims, size_t keepdim>
ReductionForm extreme(const NodeReader& q) {
  ReductionForm form = combined<reduction, dims, keepdim>(q);
  if (q.type(0).dtype == DType::b8) {
    form.reduction = reduction == Reduction::max ? Reduction::any : Reduction::all;
  }
  return form;
}

template <Reduction reduction, size_t dims, size_t keepdim>
ReductionForm truth(const NodeReader& q) {
  ReductionForm form = combined<reduction, dims, keepdim>(q);
  form.accumulate = DType::b8;
  return form;
}

Decision has_dims(const NodeReader& q) {
  if (q.type(0).rank() > 0) return Decision::allow();
  return Decision::forbid("a scalar has no dimension to reduce");
}

Decision allows_total(const NodeReader& q) {
  const DType from = q.type(0).dtype, to = q.result().dtype;
  if (to == DType::b8) return Decision::forbid("a total of bools");
  if (takes(kHalves, to) && from != to)
    return Decision::forbid("each element is rounded before it is added");
  return has_dims(q);
}

// An empty list of dimensions means all of them, but here it means none.
Decision allows_listed(const NodeReader& q) {
  if (!q.is_none(1) && q.integers(1).empty()) return Decision::forbid("nothing is reduced");
  return has_dims(q);
}

// Of nothing there is no extreme; torch says so.
Decision allows_extreme(const NodeReader& q) {
  if (!all_certainly_positive(q.type(0).sizes))
    return Decision::forbid("maybe nothing to choose from");
  return has_dims(q);
}

// The greater of 0 and -0 is whichever comes first for PyTorch's loops, or last, or first of every
// eighth: by size, strides and threads. A kernel, whose order is another, is for where nobody sees.
Decision allows_number(const NodeReader& q) {
  if (is_floating(q.type(0).dtype) && !q.node().traits.loose)
    return Decision::forbid("the sign of a zero is seen");
  return allows_extreme(q);
}

// count_nonzero(self, dim) as the sum of self != 0.
bool count_nonzero(DecomposeQuery& q) {
  const Ref nonzero{q.call("aten::ne.Scalar", {q.arg(0), 0})};
  ArgList dims;
  for (int64_t dim : q.integers(1)) dims.emplace_back(dim);
  q.replace(0, q.call("aten::sum.dim_IntList", {nonzero, std::move(dims), false, None{}}));
  return true;
}

// nansum(self, dim, keepdim, dtype) as the sum with 0 for each NaN.
bool nansum(DecomposeQuery& q) {
  Arg self = q.arg(0);
  if (is_floating(q.type(0).dtype)) {
    const Ref bad{q.call("aten::isnan", {self})};
    self = Ref{q.call("aten::where.ScalarSelf", {bad, 0.0, self})};
  }
  const Arg dims = q.is_none(1) ? Arg(ArgList{}) : q.arg(1);
  q.replace(0, q.call("aten::sum.dim_IntList", {self, dims, q.arg(2), q.arg(3)}));
  return true;
}

// trace(self) as the sum of the diagonal.
bool trace(DecomposeQuery& q) {
  const Ref diagonal{q.call("aten::diagonal_copy", {q.arg(0), 0, 0, 1})};
  q.replace(0, q.call("aten::sum", {diagonal, None{}}));
  return true;
}

constexpr Meaning reduces(std::string_view name, ReductionRule rule,
                          Decision (*allows)(const NodeReader&)) {
  return {.name = name, .reduction = rule, .allows = allows};
}

constexpr Meaning kRows[] = {
    reduces("aten::sum", total<Reduction::sum, kNone, kNone>, allows_total),
    reduces("aten::sum.dim_IntList", total<Reduction::sum, 1, 2>, allows_total),
    reduces("aten::prod", total<Reduction::product, kNone, kNone>, allows_total),
    reduces("aten::prod.dim_int", total<Reduction::product, 1, 2>, allows_total),
    reduces("aten::amax", extreme<Reduction::max, 1, 2>, allows_number),
    reduces("aten::amin", extreme<Reduction::min, 1, 2>, allows_number),
    reduces("aten::max", extreme<Reduction::max, kNone, kNone>, allows_number),
    reduces("aten::min", extreme<Reduction::min, kNone, kNone>, allows_number),
    reduces("aten::argmax", combined<Reduction::argmax, 1, 2>, allows_extreme),
    reduces("aten::argmin", combined<Reduction::argmin, 1, 2>, allows_extreme),
    reduces("aten::all", truth<Reduction::all, kNone, kNone>, has_dims),
    reduces("aten::all.dim", truth<Reduction::all, 1, 2>, has_dims),
    reduces("aten::all.dims", truth<Reduction::all, 1, 2>, allows_listed),
    reduces("aten::any", truth<Reduction::any, kNone, kNone>, has_dims),
    reduces("aten::any.dim", truth<Reduction::any, 1, 2>, has_dims),
    reduces("aten::any.dims", truth<Reduction::any, 1, 2>, allows_listed),
    {.name = "aten::count_nonzero", .decompose = count_nonzero},
    {.name = "aten::count_nonzero.dim_IntList", .decompose = count_nonzero},
    {.name = "aten::nansum", .decompose = nansum},
    {.name = "aten::trace", .decompose = trace},
};

}  // namespace

std::span<const Meaning> reduce_meanings() { return kRows; }

}  // namespace smelt
