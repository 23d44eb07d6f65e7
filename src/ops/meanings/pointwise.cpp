// Comparisons, logic, bits, bounds and choices.
#include <limits>

#include "ops/meanings/families.h"
#include "ops/rules/element.h"

namespace smelt {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Comparisons see numbers as values of the tensor's dtype.
template <Expr (*compare)(Expr, Expr)>
Expr comparison(ElementQuery& q) {
  return compare(q.rounded(0), q.rounded(1));
}

Expr equal(Expr a, Expr b) { return a == b; }
Expr not_equal(Expr a, Expr b) { return a != b; }
Expr less(Expr a, Expr b) { return a < b; }
Expr less_equal(Expr a, Expr b) { return a <= b; }
Expr greater(Expr a, Expr b) { return a > b; }
Expr greater_equal(Expr a, Expr b) { return a >= b; }

// Each operand by itself: != 0 needs no common dtype.
template <Expr (*function)(Expr, Expr)>
Expr logical(ElementQuery& q) {
  return function(q.operand(0).to(DType::b8), q.operand(1).to(DType::b8));
}

Expr both(Expr a, Expr b) { return a & b; }
Expr either(Expr a, Expr b) { return a | b; }
Expr differ(Expr a, Expr b) { return a ^ b; }
Expr logical_not(ElementQuery& q) { return !q.operand(0).to(DType::b8); }
Expr bitwise_not(Expr x) { return apply(loops::Op::bit_not, x); }
Expr shift_left(Expr a, Expr b) { return apply(loops::Op::shift_left, a, b); }

Expr shift_right(Expr a, Expr b) {
  const Expr shifted = apply(loops::Op::shift_right, a, b);
  // Of an unsigned number nothing is left, where a signed one keeps its sign.
  return a.dtype() == DType::u8 ? select(b >= 8.0, 0.0, shifted) : shifted;
}

Expr lesser(Expr a, Expr b) { return min(a, b); }
Expr larger(Expr a, Expr b) { return max(a, b); }

// Of two zeros eager's vectors give the second, its scalar code the first.
template <Expr (*extreme)(Expr, Expr)>
Expr extreme_of(ElementQuery& q) {
  const Expr a = q.rounded(0), b = q.rounded(1);
  return as_eager_loops(q, extreme(b, a), extreme(a, b));
}

// The operand that is a number, where the other is not.
template <Expr (*extreme)(Expr, Expr)>
Expr ignoring_nan(Expr a, Expr b) {
  if (!is_floating(a.dtype())) return extreme(a, b);
  return select(is_nan(a), b, select(is_nan(b), a, extreme(a, b)));
}

Expr heaviside(Expr x, Expr value) {
  if (x.dtype() == DType::b8) return x | value;
  return select(x == 0.0, value, (x > 0.0).to(x.dtype()));
}

// Of an integer no test for special values holds.
Expr tests_nan(ElementQuery& q) {
  const Expr x = q.computed(0);
  return is_floating(x.dtype()) ? is_nan(x) : q.constant(DType::b8, int64_t{0});
}

enum class Infinity : uint8_t { any, positive, negative };

template <Infinity which>
Expr tests_infinity(ElementQuery& q) {
  const Expr x = q.computed(0);
  if (!is_floating(x.dtype())) return q.constant(DType::b8, int64_t{0});
  if (which == Infinity::any) return abs(x) == kInfinity;
  return x == (which == Infinity::positive ? kInfinity : -kInfinity);
}

Expr sign_bit(ElementQuery& q) {
  const Expr x = q.computed(0);
  if (is_floating(x.dtype())) return copysign(x.like(1), x) < 0.0;
  if (x.dtype() == DType::u8 || x.dtype() == DType::b8) return q.constant(DType::b8, int64_t{0});
  return x < 0.0;
}

// fmax, fmin: of two zeros the first, of bf16 the second.
template <Expr (*extreme)(Expr, Expr)>
Expr extreme_number(ElementQuery& q) {
  const Expr a = q.rounded(0), b = q.rounded(1);
  return q.result().dtype == DType::bf16 ? ignoring_nan<extreme>(b, a)
                                         : ignoring_nan<extreme>(a, b);
}

// Of two zeros x is kept, as torch does it.
template <Expr (*extreme)(Expr, Expr)>
Expr clamp_one(ElementQuery& q) {
  return extreme(q.computed(0), q.rounded(1));
}

// clamp(self, min, max): min first, so that a max below it wins.
Expr clamp(ElementQuery& q) {
  Expr x = q.computed(0);
  if (!q.is_none(1)) x = max(x, q.rounded(1));
  if (!q.is_none(2)) x = min(x, q.rounded(2));
  return x;
}

// clamp.Tensor(self, min, max): of two zeros as maximum and minimum have it.
Expr clamp_tensors(ElementQuery& q) {
  const Expr x = q.computed(0);
  Expr by_vectors = x, by_scalars = x;
  if (!q.is_none(1)) {
    const Expr low = q.rounded(1);
    by_vectors = max(low, by_vectors);
    by_scalars = max(by_scalars, low);
  }
  if (!q.is_none(2)) {
    const Expr high = q.rounded(2);
    by_vectors = min(high, by_vectors);
    by_scalars = min(by_scalars, high);
  }
  return as_eager_loops(q, by_vectors, by_scalars);
}

// where(condition, self, other), computed in the dtype of the result.
Expr where(ElementQuery& q) {
  return select(q.operand(0).to(DType::b8), q.computed(1), q.computed(2));
}

// lerp(self, end, weight): from the nearer end.
Expr lerp(ElementQuery& q) {
  const Expr self = q.computed(0), end = q.computed(1), weight = q.computed(2);
  const Expr distance = end - self;
  return select(abs(weight) < 0.5, self + weight * distance, end - distance * (1.0 - weight));
}

Expr add_product(ElementQuery& q) {
  return q.computed(0) + q.operand(3) * q.computed(1) * q.computed(2);
}

Expr add_quotient(ElementQuery& q) {
  return q.computed(0) + q.operand(3) * q.computed(1) / q.computed(2);
}

double highest(DType dtype) {
  switch (dtype) {
    case DType::f16: return 65504;
    case DType::bf16: return 0x1.fep127;
    case DType::f32: return std::numeric_limits<float>::max();
    default: return std::numeric_limits<double>::max();
  }
}

// nan_to_num(self, nan, posinf, neginf)
Expr nan_to_num(ElementQuery& q) {
  const Expr x = q.computed(0);
  if (!is_floating(x.dtype())) return x;
  const double most = highest(q.result().dtype);
  Expr result = select(x == kInfinity, q.number(2, most), x);
  result = select(x == -kInfinity, q.number(3, -most), result);
  return select(is_nan(x), q.number(1, 0), result);
}

// A number beside integers must be one of them.
Decision value_fits(const NodeReader& q) {
  const bool fraction = q.is_tensor(3) ? is_floating(q.type(3).dtype) : q.arg(3).is<double>();
  if (is_floating(q.result().dtype) || !fraction) return Decision::allow();
  return Decision::forbid("a fraction of integers");
}

constexpr Meaning kRows[] = {
    pointwise("aten::eq.Scalar", 2, comparison<equal>),
    pointwise("aten::eq.Tensor", 2, comparison<equal>),
    pointwise("aten::ne.Scalar", 2, comparison<not_equal>),
    pointwise("aten::ne.Tensor", 2, comparison<not_equal>),
    pointwise("aten::lt.Scalar", 2, comparison<less>),
    pointwise("aten::lt.Tensor", 2, comparison<less>),
    pointwise("aten::le.Scalar", 2, comparison<less_equal>),
    pointwise("aten::le.Tensor", 2, comparison<less_equal>),
    pointwise("aten::gt.Scalar", 2, comparison<greater>),
    pointwise("aten::gt.Tensor", 2, comparison<greater>),
    pointwise("aten::ge.Scalar", 2, comparison<greater_equal>),
    pointwise("aten::ge.Tensor", 2, comparison<greater_equal>),
    pointwise("aten::logical_and", 2, logical<both>),
    pointwise("aten::logical_not", 1, logical_not),
    pointwise("aten::logical_or", 2, logical<either>),
    pointwise("aten::logical_xor", 2, logical<differ>),
    pointwise("aten::bitwise_and.Scalar", 2, binary<both>),
    pointwise("aten::bitwise_and.Tensor", 2, binary<both>),
    pointwise("aten::bitwise_not", 1, unary<bitwise_not>),
    pointwise("aten::bitwise_or.Scalar", 2, binary<either>),
    pointwise("aten::bitwise_or.Tensor", 2, binary<either>),
    pointwise("aten::bitwise_xor.Scalar", 2, binary<differ>),
    pointwise("aten::bitwise_xor.Tensor", 2, binary<differ>),
    pointwise("aten::bitwise_left_shift.Tensor", 2, binary<shift_left>),
    pointwise("aten::bitwise_left_shift.Tensor_Scalar", 2, binary<shift_left>),
    pointwise("aten::bitwise_right_shift.Tensor", 2, binary<shift_right>),
    pointwise("aten::bitwise_right_shift.Tensor_Scalar", 2, binary<shift_right>),
    pointwise("aten::isinf", 1, tests_infinity<Infinity::any>),
    pointwise("aten::isnan", 1, tests_nan),
    pointwise("aten::isneginf", 1, tests_infinity<Infinity::negative>),
    pointwise("aten::isposinf", 1, tests_infinity<Infinity::positive>),
    pointwise("aten::signbit", 1, sign_bit),
    pointwise("aten::maximum", 2, extreme_of<larger>),
    pointwise("aten::minimum", 2, extreme_of<lesser>),
    pointwise("aten::fmax", 2, extreme_number<larger>),
    pointwise("aten::fmin", 2, extreme_number<lesser>),
    pointwise("aten::heaviside", 2, binary<heaviside>),
    pointwise("aten::clamp", 3, clamp),
    pointwise("aten::clamp.Tensor", 3, clamp_tensors),
    pointwise("aten::clamp_max", 2, clamp_one<lesser>),
    pointwise("aten::clamp_max.Tensor", 2, extreme_of<lesser>),
    pointwise("aten::clamp_min", 2, clamp_one<larger>),
    pointwise("aten::clamp_min.Tensor", 2, extreme_of<larger>),
    with_numbers(pointwise("aten::where.self", 0, where), {1, 2}),
    with_numbers(pointwise("aten::where.Scalar", 0, where), {1, 2}),
    with_numbers(pointwise("aten::where.ScalarOther", 0, where), {1, 2}),
    with_numbers(pointwise("aten::where.ScalarSelf", 0, where), {1, 2}),
    with_numbers(pointwise("aten::lerp.Scalar", 2, lerp), {2}),
    pointwise("aten::lerp.Tensor", 3, lerp),
    with_numbers(pointwise("aten::addcmul", 3, add_product, kCheap, value_fits), {3}),
    with_numbers(pointwise("aten::addcdiv", 3, add_quotient, kDivides, value_fits), {3}),
    pointwise("aten::nan_to_num", 1, nan_to_num),
};

}  // namespace

std::span<const Meaning> pointwise_meanings() { return kRows; }

}  // namespace smelt
