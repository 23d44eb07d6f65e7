#include "ops/rules/decompose.h"

#include <algorithm>

#include "ops/rules/element.h"
#include "ops/rules/layout.h"
#include "ops/rules/promotion.h"

namespace smelt {

ArgList list_of(const Dims& dims) { return {dims.begin(), dims.end()}; }
ArgList list_of(const Sizes& sizes) { return {sizes.begin(), sizes.end()}; }

namespace {

Term reduced(Term a, std::string_view op, const Dims& dims, bool keepdim) {
  return write(*a.q, op, {a.ref(), list_of(dims), keepdim});
}

}  // namespace

Term write(DecomposeQuery& q, std::string_view op, std::vector<Arg> args) {
  return {&q, q.call(op, std::move(args))};
}

Term argument(DecomposeQuery& q, size_t i) { return {&q, q.value(i)}; }

Term wide_argument(DecomposeQuery& q, size_t i) {
  return argument_as(q, i, accumulate_of(q.type(i).dtype));
}

Term argument_as(DecomposeQuery& q, size_t i, DType dtype) { return cast(argument(q, i), dtype); }

Term cast(Term x, DType dtype) {
  if (x.type().dtype == dtype) return x;
  return write(*x.q, "aten::_to_copy", {x.ref(), dtype, None{}, None{}, None{}, false, None{}});
}

void give(DecomposeQuery& q, size_t i, Term x) {
  if (!is_wanted(q, i)) return;
  q.replace(i, cast(x, q.result(i).dtype).value);
}

void give_viewed(DecomposeQuery& q, size_t i, Term x) {
  if (!is_wanted(q, i)) return;
  const TensorType& wanted = q.result(i);
  x = cast(x, wanted.dtype);
  if (x.type().sizes != wanted.sizes)
    x = write(q, "aten::_unsafe_view", {x.ref(), list_of(wanted.sizes)});
  q.replace(i, x.value);
}

Term operator+(Term a, Term b) { return write(*a.q, "aten::add.Tensor", {a.ref(), b.ref(), 1}); }
Term operator+(Term a, double b) { return write(*a.q, "aten::add.Tensor", {a.ref(), b, 1}); }
Term operator-(Term a, Term b) { return write(*a.q, "aten::sub.Tensor", {a.ref(), b.ref(), 1}); }
Term operator-(Term a, double b) { return write(*a.q, "aten::sub.Tensor", {a.ref(), b, 1}); }
Term operator-(double a, Term b) { return write(*b.q, "aten::rsub.Scalar", {b.ref(), a, 1}); }
Term operator-(Term a) { return write(*a.q, "aten::neg", {a.ref()}); }
Term operator*(Term a, Term b) { return write(*a.q, "aten::mul.Tensor", {a.ref(), b.ref()}); }
Term operator*(Term a, double b) {
  return b == 1 ? a : write(*a.q, "aten::mul.Tensor", {a.ref(), b});
}
Term operator/(Term a, Term b) { return write(*a.q, "aten::div.Tensor", {a.ref(), b.ref()}); }
Term operator/(Term a, double b) {
  return b == 1 ? a : write(*a.q, "aten::div.Tensor", {a.ref(), b});
}
Term operator/(Term a, const Size& count) {
  return count.is(1) ? a : write(*a.q, "aten::div.Tensor", {a.ref(), count});
}
Term exp(Term a) { return write(*a.q, "aten::exp", {a.ref()}); }
Term log(Term a) { return write(*a.q, "aten::log", {a.ref()}); }
Term sqrt(Term a) { return write(*a.q, "aten::sqrt", {a.ref()}); }
Term rsqrt(Term a) { return write(*a.q, "aten::rsqrt", {a.ref()}); }
Term abs(Term a) { return write(*a.q, "aten::abs", {a.ref()}); }
Term power(Term a, double exponent) {
  return write(*a.q, "aten::pow.Tensor_Scalar", {a.ref(), exponent});
}
Term equal_to(Term a, Arg number) {
  return write(*a.q, "aten::eq.Scalar", {a.ref(), std::move(number)});
}
Term at_least(Term a, double number) { return write(*a.q, "aten::ge.Scalar", {a.ref(), number}); }
Term greater_than(Term a, double number) {
  return write(*a.q, "aten::gt.Scalar", {a.ref(), number});
}
Term select(Term condition, Term a, Term b) {
  return write(*a.q, "aten::where.self", {condition.ref(), a.ref(), b.ref()});
}
Term fill_where(Term a, Term condition, Arg number) {
  return write(*a.q, "aten::masked_fill.Scalar", {a.ref(), condition.ref(), std::move(number)});
}

Term sum(Term a, const Dims& dims, bool keepdim) {
  return write(*a.q, "aten::sum.dim_IntList", {a.ref(), list_of(dims), keepdim, None{}});
}
Term largest(Term a, const Dims& dims, bool keepdim) {
  return reduced(a, "aten::amax", dims, keepdim);
}
Term smallest(Term a, const Dims& dims, bool keepdim) {
  return reduced(a, "aten::amin", dims, keepdim);
}

Term view(Term a, const Sizes& sizes) {
  return write(*a.q, "aten::view", {a.ref(), list_of(sizes)});
}
Term unsqueeze(Term a, int64_t dim) { return write(*a.q, "aten::unsqueeze", {a.ref(), dim}); }
Term slice(Term a, int64_t dim, const Size& start, const Size& end) {
  return write(*a.q, "aten::slice.Tensor", {a.ref(), dim, start, end, 1});
}

Term along_rest(Term reduced, Sizes sizes, const Dims& dims) {
  for (int64_t dim : dims) sizes[dim] = 1;
  const TensorType& type = reduced.type();
  return type.rank() == 0 || type.sizes == sizes ? reduced : view(reduced, sizes);
}

Term along_channels(Term vector, int rank) {
  if (rank <= 2) return vector;
  Sizes sizes(rank - 1, Size(1));
  sizes[0] = vector.type().sizes[0];
  return view(vector, sizes);
}

std::optional<Dims> dims_argument(const DecomposeQuery& q, size_t i, int rank) {
  if (q.is_none(i)) return dims_from(0, rank);
  const Sizes listed = q.sizes(i);
  if (listed.empty()) return dims_from(0, rank);
  Dims dims;
  for (const Size& item : listed) {
    if (!item.is_known()) return std::nullopt;
    const std::optional<int> dim = wrap_dim(item.known(), rank);
    if (!dim || std::ranges::find(dims, *dim) != dims.end()) return std::nullopt;
    dims.push_back(*dim);
  }
  std::ranges::sort(dims);
  if (rank == 0) dims.clear();
  return dims;
}

Dims dims_from(int first, int end) {
  Dims dims;
  for (int dim = first; dim < end; ++dim) dims.push_back(dim);
  return dims;
}

std::optional<Size> count_of(const TensorType& type, const Dims& dims) {
  Size count = 1;
  for (int64_t dim : dims) {
    if (!is_certainly_positive(type.sizes[dim])) return std::nullopt;
    count = count * type.sizes[dim];
  }
  return count;
}

bool has_elements(const TensorType& type) {
  return std::ranges::all_of(type.sizes, is_certainly_positive);
}

bool is_plain_float(const TensorType& type) { return takes(kFloats, type.dtype); }

}  // namespace smelt
