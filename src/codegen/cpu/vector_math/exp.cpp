// Exponentials. x = k*log(2) + r with a whole k and |r| <= log(2)/2, in two steps by fma (the first
// is exact); exp(r) = 1 + r + r^2*q(r) by a polynomial; the result is scaled by 2^k.
//
// k is never converted to an integer. round_by + bias + k is computed as a floating number: its low
// bits then hold k + bias, and a shift by the mantissa's width leaves 2^k as a number (bias =
// exponent_bias). Results that are denormal or overflow need 2^k beyond the range of exponents:
// there the bias is doubled, so that half of the low bits is 2^floor(k/2), and the rest
// 2^ceil(k/2); the only rounding of two multiplications is then in the second. NaN goes through r.
// AVX-512 has an instruction that scales by 2^k with one rounding, which gives the same bits.
#include "codegen/cpu/vector_math/functions.h"

namespace smelt::vector_math {

namespace {

// Minimax fits (Remez exchange with 45 digits, coefficients then rounded to the type) on |r| <=
// 1.005*log(2)/2, of (exp(r) - 1 - r) / r^2 with errors relative to exp(r) - 1: 2^-27.9 and 2^-60.
constexpr double kExp32[] = {0.5,           0.166666672,   0.041666232,
                             0.00833328534, 0.00139491807, 0.000199082366};
constexpr double kExp64[] = {0.5,
                             0.16666666666666677,
                             0.041666666666666498,
                             0.0083333333333212266,
                             0.0013888888888965278,
                             0.00019841269887295993,
                             2.4801587168719189e-5,
                             2.7557242896149638e-6,
                             2.7557404281929513e-7,
                             2.5109537880251117e-8,
                             2.087531672565932e-9};
// (2^r - 1) / r on |r| <= 0.501, errors relative to 2^r: 2^-27.5 and 2^-54.8.
constexpr double kExpTwo32[] = {0.693147242,   0.240226552,   0.0555026159,
                                0.00961736497, 0.00134233304, 0.000156818249};
constexpr double kExpTwo64[] = {
    0.69314718055994529,   0.24022650695910133,    0.055504108664820057,  0.0096181291075935708,
    0.0013333558146780093, 0.00015403530457874936, 1.5252733489455159e-5, 1.3215434871557389e-6,
    1.0178200458827259e-7, 7.073858438902141e-9,   4.434730853956467e-10};

struct Reduced {
  Num r, k;
  Bits raw;  // its low bits: k + the bias asked for
};

Reduced reduce(const Num& x, int bias) {
  const double round = round_by(x) + bias;
  const Num raw = fma(x, kLog2E, round);
  const Num k = raw - round;
  const Num r = fma(k, -kLn2.low(x), fma(k, -kLn2.high(x), x));
  return {r, k, raw.bits()};
}

Reduced reduce_by_two(const Num& x, int bias) {
  const double round = round_by(x) + bias;
  const Num raw = x + round;
  const Num k = raw - round;
  return {x - k, k, raw.bits()};
}

Num small_exp(const Num& r) {
  return fma(fma(polynomial(r, by_type(r, kExp32, kExp64)), r, 1.0), r, 1.0);
}

// exp(r) - 1
Num small_expm1(const Num& r) { return fma(polynomial(r, by_type(r, kExp32, kExp64)), r * r, r); }

Num small_exp2(const Num& r) {
  return fma(polynomial(r, by_type(r, kExpTwo32, kExpTwo64)), r, 1.0);
}

Num power_of_two(const Num& like, const Bits& biased) {
  return (biased << mantissa_bits(like)).as_number();
}

// x * 2^k; the bias of raw is twice exponent_bias.
Num scale(const Num& x, const Reduced& reduced) {
  if (has_scale_by_exponent(x)) return scale_by_exponent(x, reduced.k);
  const Bits half = reduced.raw >> 1;
  return x * power_of_two(x, half) * power_of_two(x, reduced.raw - half);
}

// Below the lowest every exp rounds to 0, above the highest to infinity.
Num clamp_exponent(const Num& x) {
  return at_most(at_least(x, by_type(x, -104.0, -746.0)), by_type(x, 89.0, 710.0));
}

}  // namespace

Num exp(const Num& x) {
  const Reduced reduced = reduce(clamp_exponent(x), 2 * exponent_bias(x));
  return scale(small_exp(reduced.r), reduced);
}

Num scaled_exp(const Num& x, const Num& factor, Term rest) {
  const double bound = by_type(x, 170.0, 1400.0);
  const Reduced reduced = reduce(at_most(at_least(x, -bound), bound), 2 * exponent_bias(x));
  const Num small = small_expm1(rest.num.value ? reduced.r + rest : reduced.r);
  return scale(fma(small, factor, factor), reduced);
}

Num exp2(const Num& x) {
  const Num clamped = at_most(at_least(x, by_type(x, -151.0, -1076.0)), by_type(x, 129.0, 1025.0));
  const Reduced reduced = reduce_by_two(clamped, 2 * exponent_bias(x));
  return scale(small_exp2(reduced.r), reduced);
}

Num exp2_of_sum(const Num& x, const Num& rest) {
  const Reduced reduced = reduce_by_two(x, 2 * exponent_bias(x));
  return scale(small_exp2(reduced.r + rest), reduced);
}

Num exp2_of_small(const Num& x) {
  const Reduced reduced = reduce_by_two(x, exponent_bias(x));
  return small_exp2(reduced.r) * power_of_two(x, reduced.raw);
}

// 2 * (2^(k-1) * small + (2^(k-1) - 1/2)): half, because 2^128 is no f32. A tiny x is the result
// itself, -0 and denormals too.
Num expm1(const Num& x) {
  const Num clamped = at_most(at_least(x, by_type(x, -18.0, -38.0)), by_type(x, 89.0, 710.0));
  const Reduced reduced = reduce(clamped, exponent_bias(x) - 1);
  const Num half = power_of_two(x, reduced.raw);
  const Num result = fma(small_expm1(reduced.r), half, half - 0.5) * 2.0;
  return select(abs(x) < by_type(x, 0x1p-30, 0x1p-60), x, result);
}

// For these 2^k is a number; where k is 0 the sum is small_expm1 itself.
Num expm1_of_positive(const Num& x) {
  const Reduced reduced = reduce(x, exponent_bias(x));
  const Num power = power_of_two(x, reduced.raw);
  return fma(small_expm1(reduced.r), power, power - 1.0);
}

// exp of a negative number only, so that nothing overflows and small results keep their digits.
Num sigmoid(const Num& x) {
  const Num e = exp(-abs(x));
  return select(x < 0.0, e, 1.0) / (e + 1.0);
}

}  // namespace smelt::vector_math
