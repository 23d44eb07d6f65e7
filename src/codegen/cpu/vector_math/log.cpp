// Logarithms. x = 2^k * (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)), found in the bits of x, and
// log(x) = k*log(2) + (f - f^2/2 + f^3*q(f)), summed from the small terms to the large, so that the
// last additions make nearly the whole error. Other bases multiply by their constants in two parts.
//
// Every k*log(2) is an fma, so log(2) needs no zeros at its end. Where k is not 0, the sum is at
// least log(2)/2, and the errors of the terms before do not grow.
#include <cmath>
#include <limits>

#include "codegen/cpu/vector_math/functions.h"

namespace smelt::vector_math {

namespace {

// (log(1 + f) - f + f^2/2) / f^3 on [sqrt(1/2) - 1, sqrt(2) - 1]: minimax fits (Remez exchange with
// 45 digits), errors relative to log(1 + f) 2^-26.9 and 2^-56.3.
constexpr double kLog32[] = {0.333333313, -0.250008225, 0.200012267, -0.166233569,
                             0.142017514, -0.13160184,  0.127616212, -0.0763454735};
constexpr double kLog64[] = {
    0.33333333333333143,  -0.24999999999987976,  0.20000000000066603,  -0.16666666669825622,
    0.14285714280093395,  -0.12499999691463987,  0.11111111147480922,  -0.10000015205462125,
    0.090909239306731393, -0.083329135565065438, 0.076915298518539038, -0.071494393470243514,
    0.066845886787179107, -0.061966792051208586, 0.056683805383657408, -0.056777835940378704,
    0.065034834085987259, -0.059816985397688607, 0.02615095837047476};

struct Base {
  LongConstant log_of_e, log_of_two;  // to this base
};
constexpr Base kNatural = {{1, 0}, kLn2};
constexpr Base kTwo = {{1.4426950408889634, 2.0355273740931033e-17}, {1, 0}};
constexpr Base kTen = {{0.4342944819032518, 1.098319650216765e-17},
                       {0.3010299956639812, -2.8037281277851704e-18}};

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// The logarithm of 2^k * (1 + f).
Num sum(const Num& k, const Num& f, const Base& base) {
  const Num square = f * f;
  const Num q = polynomial(f, by_type(f, kLog32, kLog64));
  Num small = fma(q * f, square, square * -0.5);  // log(1 + f) - f
  if (base.log_of_e.value == 1) {
    small = fma(k, base.log_of_two.low(f), small);
    return fma(k, base.log_of_two.high(f), small + f);
  }
  small = fma(f, base.log_of_e.low(f), small * base.log_of_e.value);
  if (base.log_of_two.value == 1) return fma(f, base.log_of_e.high(f), small) + k;
  small = fma(k, base.log_of_two.low(f), small);
  return fma(k, base.log_of_two.high(f), fma(f, base.log_of_e.high(f), small));
}

// `result` but for what is no positive finite number.
Num with_limits(const Num& x, const Num& result) {
  const Num not_positive = select(x == 0.0, x.number(-kInfinity), kNaN);
  return select(x > 0.0, select(x < kInfinity, result, x), not_positive);
}

Num log_to(const Num& x, const Base& base) {
  const Split s = split_any(x);
  return with_limits(x, sum(s.k, s.m - 1.0, base));
}

}  // namespace

Split split_exponent(const Num& x) {
  const int width = mantissa_bits(x);
  const int64_t one = static_cast<int64_t>(exponent_bias(x)) << width;
  const int64_t half_root = x.wide() ? 0x3fe6a09e667f3bcd : 0x3f3504f3;  // sqrt(1/2)
  const Bits moved = x.bits() + (one - half_root);
  const Bits exponent = moved >> width;  // the sign bit of x is 0
  const Num m = ((moved & ((int64_t{1} << width) - 1)) + half_root).as_number();
  // As the low bits of 2^width the exponent is a number without a conversion of 64-bit integers.
  const double shift = std::ldexp(1.0, width);
  const int64_t shift_bits = static_cast<int64_t>(exponent_bias(x) + width) << width;
  const Num k = (exponent + shift_bits).as_number() - (shift + exponent_bias(x));
  return {k, m, exponent};
}

Split split_any(const Num& x) {
  const int width = mantissa_bits(x);
  const Mask denormal = x < std::ldexp(1.0, 1 - exponent_bias(x));
  const Split s = split_exponent(select(denormal, x * std::ldexp(1.0, width), x));
  return {select(denormal, s.k - width, s.k), s.m, s.exponent};
}

Num log(const Num& x) { return log_to(x, kNatural); }
Num log2(const Num& x) { return log_to(x, kTwo); }
Num log10(const Num& x) { return log_to(x, kTen); }

// k is that of u = 1 + x, but f = 2^-k * (1 + x) - 1 is computed from x, with one rounding. Where x
// is so large that u is x, and 2^-k may be denormal, f comes from the bits. The result has the sign
// of x, also that of -0.
Num log1p(const Num& x) {
  const Num u = x + 1.0;
  const Split s = split_exponent(u);
  const Num unit = ((2 * exponent_bias(x) - s.exponent) << mantissa_bits(x)).as_number();  // 2^-k
  const Num f = select(x < 0x1p60, fma(x, unit, unit - 1.0), s.m - 1.0);
  return copysign(with_limits(u, sum(s.k, f, kNatural)), x);
}

}  // namespace smelt::vector_math
