// Powers and remainders.
//
// |x|^y is 2^(y*log2|x|). An error of y*log2|x| is one of the result's digits, and as y*log2|x| has
// up to 7 (f32) or 10 (f64) bits before the point, log2|x| needs that many more than a number has:
// it is computed as a Pair. |x| = 2^k * m, s = (m - 1)/(m + 1), z = s^2 <= 0.0295, and
//   log2(m) = 2/log(2) * atanh(s),   atanh(s) = s + s*z*(1/3 + z*q(z)).
// Each term is 30 times smaller than the one before: s, z and s*z/3 are pairs, q needs no second
// part. The second parts need few digits themselves, so their own errors are left.
#include <limits>

#include "codegen/cpu/vector_math/calls.h"
#include "codegen/cpu/vector_math/functions.h"

namespace smelt::vector_math {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// (atanh(s)/s - 1 - z/3)/z^2 on [0, 0.02944]: minimax fits (Remez exchange with 45 digits), errors
// relative to atanh 2^-35.6 and 2^-66.5.
constexpr double kAtanh32[] = {0.20000045, 0.142759159, 0.116658024};
constexpr double kAtanh64[] = {0.20000000000000001,  0.14285714285714265,  0.11111111111122535,
                               0.090909090880470791, 0.076923080826761359, 0.066666352680765123,
                               0.058838826165762914, 0.05218914883624249,  0.054551876385392425};
constexpr LongConstant kThird = {0.3333333333333333, 1.850371707708594e-17};
constexpr LongConstant kTwiceLog2E = {2.8853900817779268, 4.0710547481862066e-17};

// The sum of two numbers, the second small beside the first.
struct Pair {
  Num high, low;
};

// a + b + low for |a| >= |b|, or a = 0
Pair add(const Num& a, const Num& b, const Num& low) {
  const Num high = a + b;
  return {high, (b - (high - a)) + low};
}

Pair multiply(const Pair& a, const Pair& b) {
  const Num high = a.high * b.high;
  const Num rest = fma(a.high, b.high, -high);
  return {high, fma(a.low, b.high, fma(a.high, b.low, rest))};
}

Pair pair(const Num& like, const LongConstant& constant) {
  return {like.number(constant.high(like)), like.number(constant.low(like))};
}

// (m - 1)/(m + 1). 1/(m + 1) is (1 - s)/2.
Pair ratio(const Num& m) {
  const Num f = m - 1.0;
  const Num sum = f + 2.0;
  const Num sum_rest = f - (sum - 2.0);
  const Num s = f / sum;
  const Num rest = fma(-s, sum_rest, fma(-s, sum, f));
  return {s, rest * fma(s, -0.5, 0.5)};
}

// log2 of x >= 0; infinite parts have no meaning in low.
Pair log2_pair(const Num& x) {
  const Split split = split_any(x);
  const Pair s = ratio(split.m);
  const Pair z = multiply(s, s);
  const Pair third = pair(x, kThird);
  const Num q = polynomial(z.high, by_type(x, kAtanh32, kAtanh64));
  const Pair tail = multiply(s, multiply(z, add(third.high, z.high * q, third.low)));
  const Pair log = multiply(add(s.high, tail.high, s.low + tail.low), pair(x, kTwiceLog2E));
  const Pair sum = add(split.k, log.high, log.low);
  return {select(x == 0.0, -kInfinity, select(x < kInfinity, sum.high, x)), sum.low};
}

// 2^(y * log)
Num exp2_of_product(const Num& y, const Pair& log) {
  const Num high = y * log.high;
  const Num low = fma(y, log.low, fma(y, log.high, -high));
  // Past the bound low may be NaN from infinities, and the result is 0 or infinite without it.
  const double bound = by_type(y, 160.0, 1100.0);
  const Num clamped = at_most(at_least(high, -bound), bound);
  return exp2_of_sum(clamped, select(abs(high) < bound, low, 0.0));
}

}  // namespace

Num pow(const Num& x, const Num& y) {
  const Num a = abs(x);
  const Num size = exp2_of_product(y, log2_pair(a));
  const Num half = y * 0.5;
  const Mask whole = trunc(y) == y;  // infinities too: they are even
  const Mask odd = whole & !(trunc(half) == half);
  const Num with_sign = select(odd & has_sign(x), -size, size);
  const Mask no_root = (x < 0.0) & (x > -kInfinity) & !whole;
  const Num result = select(no_root, kNaN, with_sign);
  // 1 whatever the other is, NaN too; and (-1)^infinity.
  const Mask one = (y == 0.0) | (x == 1.0) | ((a == 1.0) & (abs(y) == kInfinity));
  return select(one, 1.0, result);
}

// |x| - q*|y| with the whole part q of the quotient is exact by fma while q fits the mantissa: it
// is a multiple of the last place of y below y. The rounded quotient may have reached the next
// whole number; then the difference is negative and y too small. Larger quotients and infinite y
// are left to the C library.
Num fmod(const Num& x, const Num& y) {
  return call_guarded("fmod", {x, y}, [](std::span<const Num> args) -> Guarded {
    const Num &x = args[0], &y = args[1];
    const Num ax = abs(x), ay = abs(y);
    const Num quotient = ax / ay;
    const Num r = fma(-trunc(quotient), ay, ax);
    const Mask covered = (quotient < by_type(x, 0x1p23, 0x1p52)) & (ay < kInfinity);
    return {covered, copysign(select(r < 0.0, r + ay, r), x)};
  });
}

}  // namespace smelt::vector_math
