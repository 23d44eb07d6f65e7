// Sine, cosine and tangent. x = k*pi/2 + r with a whole k and |r| a little over pi/4 at most; the
// low bits of k choose between the polynomials of sin(r) and cos(r) and the sign. k*pi/2 is taken
// away in three parts by fma. The first difference is exact (a multiple of the last place of pi/2
// that fits the mantissa), the others round relative to what is left, so that r keeps its digits
// also where x is close to a multiple of pi/2. That holds for |x| below 2^17 (f32) or 2^26 (f64);
// if a lane is beyond, the C library computes.
#include "codegen/cpu/vector_math/calls.h"
#include "codegen/cpu/vector_math/functions.h"

namespace smelt::vector_math {

namespace {

// On r^2 = z in [0, 0.81^2]: minimax fits (Remez exchange with 45 digits). (sin(r)/r - 1)/z, errors
// relative to sin 2^-27.6 and 2^-57.
constexpr double kSin32[] = {-0.166666523, 0.00833201129, -0.00019495048};
constexpr double kSin64[] = {
    -0.16666666666666666,   0.0083333333333333211,  -0.00019841269841251347, 2.7557319211761665e-6,
    -2.5052104198462822e-8, 1.6058269611324693e-10, -7.5737172943453709e-13};
// (cos(r) - 1 + z/2)/z^2, errors relative to cos 2^-32.5 and 2^-59.
constexpr double kCos32[] = {0.0416666418, -0.00138871255, 2.44112216e-05};
constexpr double kCos64[] = {
    0.041666666666666664,  -0.0013888888888888866,  2.4801587301564411e-5, -2.7557319212452947e-7,
    2.0876753732036943e-9, -1.1470223797510143e-11, 4.7350783437921452e-14};
constexpr double kTwoOverPi = 0.6366197723675814;
// pi/2 in three numbers of the type.
constexpr double kHalfPi32[] = {1.57079637, -4.37113883e-08, -1.71512451e-15};
constexpr double kHalfPi64[] = {1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33};

struct Angle {
  Num sin, cos;  // of r
  Bits k;        // its low bits
  Mask covered;  // |x| is small enough; false for NaN
};

Angle split(const Num& x) {
  const Num raw = fma(x, kTwoOverPi, round_by(x));
  const Num k = raw - round_by(x);
  Num r = x;
  for (double part : by_type(x, kHalfPi32, kHalfPi64)) r = fma(k, -part, r);
  const Num z = r * r;
  const Num sin = fma(polynomial(z, by_type(x, kSin32, kSin64)) * z, r, r);
  const Num cos = fma(polynomial(z, by_type(x, kCos32, kCos64)), z * z, fma(z, -0.5, 1.0));
  return {sin, cos, raw.bits(), abs(x) < by_type(x, 0x1p17, 0x1p26)};
}

// Bit 1 of k as the sign.
Num flip(const Num& x, const Bits& k) {
  const int to_sign = by_type(x, 30, 62);
  return (x.bits() ^ ((k & 2) << to_sign)).as_number();
}

}  // namespace

Num sin(const Num& x) {
  return call_guarded("sin", {x}, [](std::span<const Num> args) -> Guarded {
    const Num& x = args[0];
    const Angle angle = split(x);
    const Num result = flip(select(is_odd(angle.k), angle.cos, angle.sin), angle.k);
    return {angle.covered, select(x == 0.0, x, result)};  // -0: r + r*0 is +0
  });
}

Num cos(const Num& x) {
  return call_guarded("cos", {x}, [](std::span<const Num> args) -> Guarded {
    const Angle angle = split(args[0]);
    const Num result = select(is_odd(angle.k), angle.sin, angle.cos);
    return {angle.covered, flip(result, angle.k + 1)};
  });
}

// sin/cos, or -cos/sin if k is odd: the sign is bit 0 of k.
Num tan(const Num& x) {
  return call_guarded("tan", {x}, [](std::span<const Num> args) -> Guarded {
    const Num& x = args[0];
    const Angle angle = split(x);
    const Mask odd = is_odd(angle.k);
    const Num ratio = select(odd, angle.cos, angle.sin) / select(odd, angle.sin, angle.cos);
    return {angle.covered, select(x == 0.0, x, flip(ratio, angle.k << 1))};
  });
}

}  // namespace smelt::vector_math
