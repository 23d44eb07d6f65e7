// Hyperbolic functions and their inverses, by exponentials and logarithms of |x|; odd ones take the
// sign of x at the end. The formulas are chosen so that no difference of nearly equal numbers is
// taken, and nothing overflows before the result does.
#include <limits>

#include "codegen/cpu/vector_math/functions.h"

namespace smelt::vector_math {

namespace {

// (sinh(sqrt(z))/sqrt(z) - 1)/z on [0, 1]: minimax fits (Remez exchange with 45 digits), errors
// relative to sinh 2^-27.5 and 2^-56.3.
constexpr double kSinh32[] = {0.166666672, 0.0083333496, 0.000198361595, 2.81695156e-06};
constexpr double kSinh64[] = {0.16666666666666669,   0.0083333333333331736, 0.00019841269841424852,
                              2.755731915680153e-6,  2.5052123467713681e-8, 1.6057217396212787e-10,
                              7.7604117120854866e-13};

// (tanh(sqrt(z))/sqrt(z) - 1)/z on [0, 1/4], errors relative to tanh 2^-25.9 and 2^-57.5.
constexpr double kTanh32[] = {-0.333331436, 0.13325879, -0.0530454852, 0.0172414724};
constexpr double kTanh64[] = {
    -0.33333333333333165,    0.13333333333300337,   -0.053968253945923896,  0.021869487786468335,
    -0.0088632210305978846,  0.0035919539287665261, -0.0014544897004873355, 0.0005833032432520477,
    -0.00021783609861904309, 5.6804713022958934e-5};

// x + x*z*p(z) by z = x^2
Num odd_polynomial(const Num& x, std::span<const double> coefficients) {
  const Num z = x * x;
  return fma(polynomial(z, coefficients) * z, x, x);
}

// exp(a)/2
Num half_exp(const Num& a) { return scaled_exp(a, a.number(0.5)); }

// log(1 + v), or log(2a) where a is so large that v = a + sqrt(a^2 +- 1) is 2a, and a^2 may
// overflow.
Num log1p_or_log2a(const Num& a, const Num& v) {
  const Mask large = a > by_type(a, 0x1p26, 0x1p54);
  return log1p(select(large, a, v)) + select(large, a.number(kLn2.value), 0.0);
}

}  // namespace

Num sinh(const Num& x) {
  const Num a = abs(x);
  const Num h = half_exp(a);
  const Num near_0 = odd_polynomial(x, by_type(x, kSinh32, kSinh64));
  return select(a < 1.0, near_0, copysign(h - 0.25 / h, x));
}

Num cosh(const Num& x) {
  const Num h = half_exp(abs(x));
  return h + 0.25 / h;
}

// e/(e + 2) with e = exp(2a) - 1; from the limit on the result is 1. Near 0 three roundings would
// show.
Num tanh(const Num& x) {
  const Num a = abs(x);
  const Num limited = at_most(a, by_type(x, 10.0, 20.0));
  const Num e = expm1_of_positive(limited + limited);
  const Num near_0 = odd_polynomial(a, by_type(x, kTanh32, kTanh64));
  return copysign(select(a < 0.5, near_0, e / (e + 2.0)), x);
}

// log(a + sqrt(a^2 + 1)) = log1p(a + a^2/(1 + sqrt(a^2 + 1)))
Num asinh(const Num& x) {
  const Num a = abs(x);
  const Num root = sqrt(fma(a, a, 1.0));
  return copysign(log1p_or_log2a(a, a + a * a / (root + 1.0)), x);
}

// log(x + sqrt(x^2 - 1)) = log1p(t + sqrt(2t + t^2)), t = x - 1
Num acosh(const Num& x) {
  const Num t = x - 1.0;
  const Num result = log1p_or_log2a(x, t + sqrt(fma(t, t, t + t)));
  return select(x < 1.0, std::numeric_limits<double>::quiet_NaN(), result);
}

// log((1 + a)/(1 - a))/2; past 1 the argument of log1p is below -1.
Num atanh(const Num& x) {
  const Num a = abs(x);
  return copysign(log1p((a + a) / (1.0 - a)) * 0.5, x);
}

}  // namespace smelt::vector_math
