// Arithmetic: sums, products, quotients, powers, roundings and the elementary functions.
#include <cmath>
#include <limits>
#include <numbers>

#include "ops/meanings/families.h"
#include "ops/rules/element.h"
#include "ops/rules/promotion.h"

namespace smelt {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool is_one_literal(const Arg& arg) {
  return (arg.is<Size>() && arg.get<Size>().is(1)) || (arg.is<double>() && arg.get<double>() == 1);
}

// alpha * x, for alpha argument 2 of add and sub.
Expr scaled(ElementQuery& q, Expr x) {
  if (is_one_literal(q.arg(2))) return x;
  return q.operand(2) * x;
}

// The CPU rounds scalars to the common dtype, factors and divisors aside; CUDA does not.
Expr term(ElementQuery& q, size_t i) {
  return q.result().device.is_cpu() ? q.rounded(i) : q.computed(i);
}

Expr add(ElementQuery& q) { return term(q, 0) + scaled(q, term(q, 1)); }
Expr subtract(ElementQuery& q) { return term(q, 0) - scaled(q, term(q, 1)); }
Expr reverse_subtract(ElementQuery& q) { return term(q, 1) - scaled(q, term(q, 0)); }
Expr multiply(ElementQuery& q) { return term(q, 0) * q.computed(1); }
Expr divide(ElementQuery& q) { return term(q, 0) / q.computed(1); }

// How the roundings between the steps of a kernel go. Kernels of f16 and bf16 round each step of a
// rounded division, unless the divisor is a scalar.
class Steps {
 public:
  explicit Steps(ElementQuery& q)
      : dtype_(q.result().dtype),
        round_(q.is_tensor(1) && !q.type(1).numel().is(1) && q.compute_dtype() != dtype_) {}
  Expr operator()(Expr x) const {
    const DType dtype = x.dtype();
    return round_ ? x.to(dtype_).to(dtype) : x;
  }

 private:
  DType dtype_;
  bool round_;
};

bool is_signed(DType dtype) { return dtype != DType::u8 && dtype != DType::b8; }

// True where a remainder has not the sign of the divisor.
Expr signs_differ(Expr remainder, Expr divisor) {
  return (remainder != 0.0) & ((divisor < 0.0) ^ (remainder < 0.0));
}

Expr floor_quotient(Expr a, Expr b, const Steps& step) {
  if (!is_floating(a.dtype())) {
    const Expr quotient = a / b;
    if (!is_signed(a.dtype())) return quotient;
    return select(signs_differ(fmod(a, b), b), quotient - 1.0, quotient);
  }
  // As Python's floor division: exact where a / b would round up to the next integer.
  const Expr plain = step(a / b);
  const Expr mod = fmod(a, b);
  Expr quotient = step(step(a - mod) / b);
  quotient = select(signs_differ(mod, b), step(quotient - 1.0), quotient);
  const Expr down = floor(quotient);
  Expr rounded = select(step(quotient - down) > 0.5, step(down + 1.0), down);
  rounded = select(quotient == 0.0, copysign(a.like(0), plain), rounded);
  return select(b == 0.0, plain, rounded);
}

Expr floor_divide(ElementQuery& q) { return floor_quotient(term(q, 0), q.computed(1), Steps(q)); }

Expr divide_rounded(ElementQuery& q) {
  // Without a rounding integers are divided as floats.
  if (q.is_none(2)) q.set_dtypes(q.result().dtype, accumulate_of(q.result().dtype));
  const Expr a = term(q, 0), b = q.computed(1);
  const Steps step(q);
  if (q.text(2) == "floor") return floor_quotient(a, b, step);
  const Expr quotient = a / b;
  if (q.is_none(2) || !is_floating(a.dtype())) return quotient;
  return trunc(step(quotient));
}

Decision known_rounding(const NodeReader& q) {
  if (q.is_none(2) || q.text(2) == "floor" || q.text(2) == "trunc") return Decision::allow();
  return Decision::forbid("an unknown rounding");
}

Expr modulo(ElementQuery& q) { return fmod(q.rounded(0), q.rounded(1)); }

Expr remainder(ElementQuery& q) {
  const Expr b = q.rounded(1);
  const Expr mod = fmod(q.rounded(0), b);
  if (!is_signed(mod.dtype())) return mod;
  return select(signs_differ(mod, b), mod + b, mod);
}

// The square-and-multiply power of an integer; it wraps around as torch's does.
Expr integer_power(Expr base, int64_t exponent) {
  Expr result = base.like(1);
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 != 0) result = result * base;
    if (exponent > 1) base = base * base;
  }
  return result;
}

// The CPU has no roots of f16: they differ from the powers at -0 and -inf.
bool has_roots(const ElementQuery& q) {
  return q.result().dtype != DType::f16 || !q.result().device.is_cpu();
}

// To an exponent that is known only when the graph runs.
Expr power_of_unknown(ElementQuery& q, Expr x) {
  const Expr exponent = q.rounded(1), power = pow(x, exponent);
  if (!has_roots(q)) return power;
  return select(exponent == 0.5, sqrt(x), select(exponent == -0.5, rsqrt(x), power));
}

Expr power_of_tensor(ElementQuery& q) {
  const Expr x = q.computed(0);
  if (is_unknown_number(q, 1)) return power_of_unknown(q, x);
  if (!is_floating(x.dtype())) return integer_power(x, q.integer(1));
  const double exponent = q.number(1);
  if (exponent == 0) return x.like(1);
  if (exponent == 1) return x;
  if (exponent == 2) return x * x;
  if (exponent == 3) return x * x * x;
  if (exponent == -2) return 1.0 / (x * x);
  if (exponent == 0.5 && has_roots(q)) return sqrt(x);
  if (exponent == -0.5 && has_roots(q)) return rsqrt(x);
  if (exponent == -1) return 1.0 / x;
  return pow(x, q.rounded(1));
}

Decision allows_power_of_tensor(const NodeReader& q) {
  if (is_unknown_number(q, 1) && is_floating(q.result().dtype)) return Decision::allow();
  if (!q.arg(1).is_number()) return Decision::forbid("the exponent is no number");
  if (q.arg(1).is<Size>() && !q.arg(1).get<Size>().is_known())
    return Decision::forbid("the exponent is not known");
  if (is_floating(q.result().dtype)) return Decision::allow();
  if (!q.arg(1).is<Size>() || q.integer(1) < 0)
    return Decision::forbid("an integer to another power");
  return Decision::allow();
}

Expr power(ElementQuery& q) { return pow(q.rounded(0), q.rounded(1)); }

Decision floats_only(const NodeReader& q) {
  if (is_floating(q.result().dtype)) return Decision::allow();
  return Decision::forbid("a power of integers");
}

Expr sign(Expr x) {
  if (x.dtype() == DType::b8) return x;
  const Expr positive = (x > 0.0).to(x.dtype());
  return is_signed(x.dtype()) ? positive - (x < 0.0).to(x.dtype()) : positive;
}

// Roundings leave integers alone.
template <Expr (*function)(Expr)>
Expr rounding(ElementQuery& q) {
  const Expr x = q.computed(0);
  return is_floating(x.dtype()) ? function(x) : x;
}

Expr round_decimals(ElementQuery& q) {
  const Expr x = q.computed(0);
  const int64_t decimals = q.integer(1);
  const double power = std::pow(10, std::abs(decimals));
  return decimals < 0 ? round(x / power) * power : round(x * power) / power;
}

Expr absolute(ElementQuery& q) {
  const Expr x = q.computed(0);
  return is_signed(x.dtype()) ? abs(x) : x;
}

Expr reciprocal(Expr x) { return 1.0 / x; }
Expr fraction(Expr x) { return x - trunc(x); }
Expr negated(Expr x) { return -x; }
Expr to_radians(Expr x) { return x * (std::numbers::pi / 180); }
Expr to_degrees(Expr x) { return x * (180 / std::numbers::pi); }

Expr angle(Expr x) {
  const Expr of_real = select(x < 0.0, std::numbers::pi, x.like(0));
  return select(is_nan(x), x, of_real);
}

Expr sinc(Expr x) {
  const Expr product = x * std::numbers::pi;
  return select(x == 0.0, 1.0, sin(product) / product);
}

Expr entropy(Expr x) {
  const Expr inside = select(x == 0.0, 0.0, -x * log(x));
  return select(x < 0.0, -kInfinity, inside);
}

Expr logit(ElementQuery& q) {
  Expr x = q.computed(0);
  if (!q.is_none(1) && q.number(1) >= 0) {
    const Expr low = q.constant(q.number(1));
    const Expr high = 1.0 - low;
    x = select(x < low, low, select(x > high, high, x));
  }
  return log(x / (1.0 - x));
}

Expr hypotenuse(Expr a, Expr b) {
  a = abs(a);
  b = abs(b);
  const Expr large = max(a, b), small = min(a, b);
  const Expr ratio = small / large;
  const Expr scaled = select(large == 0.0, large, large * sqrt(1.0 + ratio * ratio));
  // An infinite side outweighs a NaN.
  return select((a == kInfinity) | (b == kInfinity), kInfinity, scaled);
}

Expr log_add_exp(Expr a, Expr b) {
  const Expr sum = max(a, b) + log1p(exp(-abs(a - b)));
  return select((a == b) & (abs(a) == kInfinity), a, sum);
}

Expr log_add_exp2(Expr a, Expr b) {
  const Expr sum = max(a, b) + log1p(exp2(-abs(a - b))) * std::numbers::log2e;
  return select((a == b) & (abs(a) == kInfinity), a, sum);
}

// x * log(y), 0 where x is 0, NaN where y is.
Expr x_times_log(Expr x, Expr y) { return select((x == 0.0) & (y == y), 0.0, x * log(y)); }
Expr x_times_log1p(Expr x, Expr y) { return select((x == 0.0) & (y == y), 0.0, x * log1p(y)); }

constexpr Meaning kRows[] = {
    with_numbers(pointwise("aten::add.Scalar", 2, add), {2}),
    with_numbers(pointwise("aten::add.Tensor", 2, add), {2}),
    with_numbers(pointwise("aten::sub.Scalar", 2, subtract), {2}),
    with_numbers(pointwise("aten::sub.Tensor", 2, subtract), {2}),
    with_numbers(pointwise("aten::rsub.Scalar", 2, reverse_subtract), {2}),
    with_numbers(pointwise("aten::rsub.Tensor", 2, reverse_subtract), {2}),
    pointwise("aten::mul.Scalar", 2, multiply),
    pointwise("aten::mul.Tensor", 2, multiply),
    floating("aten::div.Scalar", 2, divide, kDivides),
    floating("aten::div.Tensor", 2, divide, kDivides),
    pointwise("aten::div.Scalar_mode", 2, divide_rounded, kTranscendental, known_rounding),
    pointwise("aten::div.Tensor_mode", 2, divide_rounded, kTranscendental, known_rounding),
    pointwise("aten::floor_divide", 2, floor_divide, kTranscendental),
    pointwise("aten::floor_divide.Scalar", 2, floor_divide, kTranscendental),
    pointwise("aten::fmod.Scalar", 2, modulo, kTranscendental),
    pointwise("aten::fmod.Tensor", 2, modulo, kTranscendental),
    pointwise("aten::remainder.Scalar", 2, remainder, kTranscendental),
    pointwise("aten::remainder.Scalar_Tensor", 2, remainder, kTranscendental),
    pointwise("aten::remainder.Tensor", 2, remainder, kTranscendental),
    pointwise("aten::pow.Tensor_Scalar", 2, power_of_tensor, kCompound, allows_power_of_tensor),
    pointwise("aten::pow.Tensor_Tensor", 2, power, kCompound, floats_only),
    pointwise("aten::pow.Scalar", 2, power, kCompound, floats_only),
    pointwise("aten::abs", 1, absolute),
    pointwise("aten::neg", 1, unary<negated>),
    pointwise("aten::sign", 1, unary<sign>),
    pointwise("aten::sgn", 1, unary<sign>),
    pointwise("aten::ceil", 1, rounding<loops::ceil>),
    pointwise("aten::floor", 1, rounding<loops::floor>),
    pointwise("aten::round", 1, rounding<loops::round>),
    pointwise("aten::trunc", 1, rounding<loops::trunc>),
    pointwise("aten::round.decimals", 1, round_decimals, kDivides),
    pointwise("aten::frac", 1, unary<fraction>),
    floating("aten::reciprocal", 1, unary<reciprocal>, kDivides),
    floating("aten::sqrt", 1, unary<loops::sqrt>, kDivides),
    floating("aten::rsqrt", 1, unary<loops::rsqrt>, kDivides),
    floating("aten::exp", 1, unary<loops::exp>),
    floating("aten::exp2", 1, unary<loops::exp2>),
    floating("aten::expm1", 1, unary<loops::expm1>),
    floating("aten::log", 1, unary<loops::log>),
    floating("aten::log10", 1, unary<loops::log10>),
    floating("aten::log1p", 1, unary<loops::log1p>),
    floating("aten::log2", 1, unary<loops::log2>),
    floating("aten::sin", 1, unary<loops::sin>),
    floating("aten::cos", 1, unary<loops::cos>),
    floating("aten::tan", 1, unary<loops::tan>, kCompound),
    floating("aten::asin", 1, unary<loops::asin>),
    floating("aten::acos", 1, unary<loops::acos>),
    floating("aten::atan", 1, unary<loops::atan>),
    floating("aten::sinh", 1, unary<loops::sinh>, kCompound),
    floating("aten::cosh", 1, unary<loops::cosh>, kCompound),
    floating("aten::tanh", 1, unary<loops::tanh>, kCompound),
    floating("aten::asinh", 1, unary<loops::asinh>, kCompound),
    floating("aten::acosh", 1, unary<loops::acosh>, kCompound),
    floating("aten::atanh", 1, unary<loops::atanh>, kCompound),
    floating("aten::erf", 1, unary<loops::erf>, kCompound),
    floating("aten::erfc", 1, unary<loops::erfc>, kCompound),
    floating("aten::sigmoid", 1, unary<loops::sigmoid>),
    floating("aten::angle", 1, unary<angle>, kCheap),
    floating("aten::deg2rad", 1, unary<to_radians>, kCheap),
    floating("aten::rad2deg", 1, unary<to_degrees>, kCheap),
    floating("aten::sinc", 1, unary<sinc>),
    floating("aten::special_entr", 1, unary<entropy>),
    floating("aten::logit", 1, logit),
    floating("aten::atan2", 2, binary<loops::atan2>, kCompound),
    floating("aten::copysign.Scalar", 2, binary<loops::copysign>, kCheap),
    floating("aten::copysign.Tensor", 2, binary<loops::copysign>, kCheap),
    pointwise("aten::hypot", 2, binary<hypotenuse>, kTranscendental),
    pointwise("aten::logaddexp", 2, binary<log_add_exp>, kCompound),
    pointwise("aten::logaddexp2", 2, binary<log_add_exp2>, kCompound),
    floating("aten::special_xlog1py", 2, binary<x_times_log1p>),
    floating("aten::xlogy.Tensor", 2, binary<x_times_log>),
};

}  // namespace

std::span<const Meaning> arithmetic_meanings() { return kRows; }

}  // namespace smelt
