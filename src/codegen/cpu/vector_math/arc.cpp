// Inverse trigonometric functions: polynomials near 0, the rest by identities that take the
// arguments there, with pi in two parts.
#include "codegen/cpu/vector_math/functions.h"

namespace smelt::vector_math {

namespace {

// Minimax fits (Remez exchange with 45 digits). (atan(t)/t - 1)/z by z = t^2 in [0, 1], errors
// relative to atan 2^-26.6 and 2^-56.
constexpr double kAtan32[] = {-0.333333135,  0.199988514,   -0.142664209,
                              0.109588981,   -0.0841140002, 0.0579237118,
                              -0.0309992153, 0.0107517382,  -0.00174422911};
constexpr double kAtan64[] = {
    -0.3333333333333332,   0.19999999999995444,   -0.14285714285311071,    0.11111111094150285,
    -0.090909086772645933, 0.076923011580805598,  -0.066665949563910462,   0.058817794290013083,
    -0.052596988096491833, 0.047457643301585736,  -0.042884068703325867,   0.03824685485417488,
    -0.032835629823577482, 0.026200921826525905,  -0.018645372480011545,   0.011324902384970118,
    -0.005604818076386086, 0.0021423180255293814, -0.00058804292100421787, 0.00010253485320575369,
    -8.4960370220820092e-6};
// (asin(s)/s - 1)/z by z = s^2 in [0, 1/4], errors relative to asin 2^-26.7 and 2^-57.8.
constexpr double kAsin32[] = {0.166667312, 0.0749566853, 0.0454657003, 0.0240570456, 0.0425535999};
constexpr double kAsin64[] = {0.16666666666666702,   0.074999999999846828, 0.044642857163460489,
                              0.030381943152742445,  0.022372204725111932, 0.017351759808790054,
                              0.013979440409218974,  0.011407341580656753, 0.010747353218018379,
                              0.0037821654315215994, 0.02162899424081529,  -0.021022718822476829,
                              0.032719309352953696};
constexpr LongConstant kHalfPi = {1.5707963267948966, 6.123233995736766e-17};
constexpr LongConstant kPi = {3.141592653589793, 1.2246467991473532e-16};

// atan of t in [-1, 1]
Num small_atan(const Num& t) {
  const Num z = t * t;
  return fma(polynomial(z, by_type(t, kAtan32, kAtan64)) * z, t, t);
}

// asin(s) with z = s^2 at most 1/4
Num small_asin(const Num& s, const Num& z) {
  return fma(polynomial(z, by_type(s, kAsin32, kAsin64)) * z, s, s);
}

// constant - x
Num from(const LongConstant& constant, const Num& x) {
  return constant.high(x) - (x - constant.low(x));
}

}  // namespace

// From 1/2 on, pi/2 - asin(a) = 2*asin(sqrt((1 - a)/2)). Past 1 the root is NaN.
Num asin(const Num& x) {
  const Num a = abs(x);
  const Mask far = a > 0.5;
  const Num z = select(far, fma(a, -0.5, 0.5), a * a);
  const Num part = small_asin(select(far, sqrt(z), a), z);
  return copysign(select(far, from(kHalfPi, part + part), part), x);
}

Num acos(const Num& x) {
  const Num a = abs(x);
  const Mask far = a > 0.5;
  const Num z = select(far, fma(a, -0.5, 0.5), a * a);
  const Num part = small_asin(select(far, sqrt(z), x), z);
  const Num twice = part + part;
  return select(far, select(x < 0.0, from(kPi, twice), twice), from(kHalfPi, part));
}

Num atan(const Num& x) {
  const Num a = abs(x);
  const Mask far = a > 1.0;
  const Num part = small_atan(select(far, 1.0 / a, a));
  return copysign(select(far, from(kHalfPi, part), part), x);
}

// The angle in the first eighth, turned to where the point (x, y) is.
Num atan2(const Num& y, const Num& x) {
  const Num ax = abs(x), ay = abs(y);
  const Mask steep = ay > ax, left = has_sign(x);
  const Num low = select(steep, ax, ay), high = select(steep, ay, ax);
  // Equal infinities are at pi/4, equal zeros at 0.
  const Num ratio = select(low == high, select(high == 0.0, high, 1.0), low / high);
  const Num part = small_atan(ratio);
  const Num turned = select(steep ^ left, -part, part);
  auto base = [&](double half_pi, double pi) {
    return select(steep, half_pi, select(left, x.number(pi), 0.0));
  };
  const Num angle =
      base(kHalfPi.high(x), kPi.high(x)) + (base(kHalfPi.low(x), kPi.low(x)) + turned);
  return copysign(angle, y);
}

}  // namespace smelt::vector_math
