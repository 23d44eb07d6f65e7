// The error function. Near 0, erf(x) = x + x*p(x^2). Away from it, 1 - erfc(|x|) with erfc =
// 2^q(|x|): on a logarithmic scale it is nearly a parabola. erfc itself, which must be right down
// to the last denormal, is exp(-x^2) * t * p(t) with t = 1/(|x| + 4); f32 takes 1/(|x| + 3) and
// computes in f64, where no second parts of sums and products have to be kept.
#include "codegen/cpu/vector_math/functions.h"

namespace smelt::vector_math {

namespace {

// Minimax fits (Remez exchange with 45 digits). erf(sqrt(z))/sqrt(z) - 1, errors relative to erf:
// f32 on [0, 0.8^2] 2^-27.6, f64 on [0, 1] 2^-56.3.
constexpr double kErf32[] = {0.128379166,   -0.376126021,  0.112831131,
                             -0.0268208068, 0.00508512929, -0.000653522904};
constexpr double kErf64[] = {
    0.12837916709551259,   -0.37612638903183748,    0.11283791670954854,    -0.026866170645072327,
    0.0052239776247751052, -0.00085483269783985017, 0.00012055331023927722, -1.4925593185225567e-5,
    1.6460967505569992e-6, -1.6349967389195032e-7,  1.4657481112451905e-8,  -1.136408900363036e-9,
    5.9425367430786812e-11};
// log2(erfc(a)), errors seen as those of erf: f32 on [0.8, 4] 2^-27.8; f64 by a - 1, on [1, 6],
// 2^-56.9.
constexpr double kLogErfc32[] = {-8.20154382e-05, -1.62775147,    -0.91775912,   -0.151304618,
                                 0.0327453688,    -0.00456596306, 0.000301088294};
constexpr double kLogErfc64[] = {
    -2.6684166967815997,    -3.8072253458535883,    -1.2163466576871058,    -0.059959990016995299,
    0.014475749850197421,   -0.0028535084125709178, 0.00034237576794404122, 3.7936216951526796e-5,
    -3.9237325432453992e-5, 1.3949550983112991e-5,  -3.0725622443753172e-6, 2.9323576613598367e-7,
    8.4852529541387538e-8,  -4.8604614007713982e-8, 1.2402167400875739e-8,  -1.9223925129503438e-9,
    1.7412880352668586e-10, -7.1095705397456062e-12};
// exp(a^2)*erfc(a)/t by t - 65/512 where t = 1/(a + 4), a in [0.49, 28]: 2^-53.8.
constexpr double kErfc64[] = {1.111445089625307,  8.0089018790984419,  51.139365010420327,
                              287.72493809858571, 1412.0118522953137,  5941.1074242289023,
                              20790.012904503859, 56908.98331092282,   103120.3995667588,
                              27847.551606353958, -521280.47944608628, -1521524.2111121886,
                              20512.15952023866,  10912161.461539565,  19059207.138146918,
                              -57423549.53581021, -229880355.87090081, 246302069.38644546,
                              2117014099.8602037, -724537771.38060701, -13587875334.23525};
// The same for f32 by t - 3/16 where t = 1/(a + 3), a in [0.49, 10.6]: 2^-29.5.
constexpr double kErfc32[] = {1.1942899073653019,  6.2788255478417687,  25.861565467316847,
                              80.859551942350961,  175.99139655885716,  193.31425217843878,
                              -189.69095549974017, -939.13840590723544, -229.32195622879217,
                              2935.0880344397819};
// (2^r - 1)/r on |r| <= 0.501, error relative to 2^r 2^-27.9: for f32 in f64.
constexpr double kExpTwo[] = {0.69314722620984626,   0.2402265109117154,    0.055502962928582644,
                              0.0096180298983414882, 0.0013410307691597326, 0.00015469997497892488};

Num erf_near_0(const Num& x) { return fma(polynomial(x * x, by_type(x, kErf32, kErf64)), x, x); }

// erfc of f64 a >= 0.49. What rounding takes from a + 4, 1/(a + 4) and a*a is put back: erfc feels
// it several times.
Num erfc_tail(const Num& a) {
  const Num limited = at_most(a, 28.0);
  const Num sum = limited + 4.0;
  const Num sum_rest = limited - (sum - 4.0);
  const Num t = 1.0 / sum;
  const Num t_rest = t * fma(-t, sum_rest, fma(-t, sum, 1.0));
  const Num square = limited * limited;
  const Num square_rest = fma(limited, limited, -square);
  const Num factor = polynomial((t - 65.0 / 512) + t_rest, kErfc64) * t;
  return scaled_exp(-square, factor, -square_rest);
}

// erfc of f32 a >= 0.49; from 10.5 on it is 0.
Num erfc_tail_of_f32(const Num& narrow) {
  const Num a = at_most(to_f64(narrow), 10.5);
  const Num t = 1.0 / (a + 3.0);
  const Num power = a * a * -kLog2E;
  const double round = round_by(a) + exponent_bias(a);
  const Num raw = power + round;
  const Num r = power - (raw - round);
  const Num scale = (raw.bits() << mantissa_bits(a)).as_number();
  const Num exp = fma(polynomial(r, kExpTwo), r, 1.0) * scale;
  return to_f32(polynomial(t - 3.0 / 16, kErfc32) * t * exp);
}

}  // namespace

// From 4 or 6 on the tail is too small to be seen beside 1.
Num erf(const Num& x) {
  const Num a = abs(x);
  const Num limited = at_most(a, by_type(x, 4.0, 6.0));
  const Num q = x.wide() ? polynomial(limited - 1.0, kLogErfc64) : polynomial(limited, kLogErfc32);
  const Num tail = copysign(1.0 - exp2_of_small(q), x);
  return select(a < by_type(x, 0.8, 1.0), erf_near_0(x), tail);
}

Num erfc(const Num& x) {
  const Num a = abs(x);
  const Num tail = x.wide() ? erfc_tail(a) : erfc_tail_of_f32(a);
  return select(a < 0.5, 1.0 - erf_near_0(x), select(x < 0.0, 2.0 - tail, tail));
}

}  // namespace smelt::vector_math
