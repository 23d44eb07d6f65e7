// The functions under test: what is true, and how far the code may be from it.
#pragma once

#include <cmath>
#include <vector>

#include "loops/kernel.h"

namespace smelt::vector_math::test {

struct Row {
  loops::Op op;
  double ulps_f32, ulps_f64;  // 0: exact
  double (*truth_of_f32)(double, double);
  long double (*truth_of_f64)(long double, long double);

  double truth(double x, double y) const { return truth_of_f32(x, y); }
  long double truth(long double x, long double y) const { return truth_of_f64(x, y); }
  const char* name() const { return loops::facts_of(op).name.data(); }
};

inline std::vector<Row> rows() {
#define SMELT_ROW(name, f32, f64, expression)                                                      \
  Row {                                                                                            \
    loops::Op::name, f32, f64,                                                                     \
        []([[maybe_unused]] double x, [[maybe_unused]] double y) -> double { return expression; }, \
        []([[maybe_unused]] long double x, [[maybe_unused]] long double y) -> long double {        \
          return expression;                                                                       \
        }                                                                                          \
  }
  return {
      SMELT_ROW(floor, 0, 0, std::floor(x)),
      SMELT_ROW(ceil, 0, 0, std::ceil(x)),
      SMELT_ROW(round, 0, 0, std::nearbyint(x)),
      SMELT_ROW(trunc, 0, 0, std::trunc(x)),
      SMELT_ROW(copysign, 0, 0, std::copysign(x, y)),
      SMELT_ROW(mod, 0, 0, std::fmod(x, y)),
      SMELT_ROW(sqrt, 0.51, 0.51, std::sqrt(x)),
      SMELT_ROW(rsqrt, 1.5, 1.5, 1 / std::sqrt(x)),
      SMELT_ROW(exp, 1, 1, std::exp(x)),
      SMELT_ROW(exp2, 1, 1.5, std::exp2(x)),
      SMELT_ROW(expm1, 2, 2, std::expm1(x)),
      SMELT_ROW(sigmoid, 2.5, 2.5,
                x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x))),
      SMELT_ROW(log, 1, 1, std::log(x)),
      SMELT_ROW(log2, 1, 1, std::log2(x)),
      SMELT_ROW(log10, 2, 2, std::log10(x)),
      SMELT_ROW(log1p, 2, 2, std::log1p(x)),
      SMELT_ROW(sin, 2, 2, std::sin(x)),
      SMELT_ROW(cos, 2, 2, std::cos(x)),
      SMELT_ROW(tan, 4, 4, std::tan(x)),
      SMELT_ROW(asin, 3, 3, std::asin(x)),
      SMELT_ROW(acos, 3, 3, std::acos(x)),
      SMELT_ROW(atan, 3, 3, std::atan(x)),
      SMELT_ROW(atan2, 4, 4, std::atan2(x, y)),
      SMELT_ROW(sinh, 3, 3, std::sinh(x)),
      SMELT_ROW(cosh, 3, 3, std::cosh(x)),
      SMELT_ROW(tanh, 2, 2, std::tanh(x)),
      SMELT_ROW(asinh, 4, 4, std::asinh(x)),
      SMELT_ROW(acosh, 4, 4, std::acosh(x)),
      SMELT_ROW(atanh, 4, 4, std::atanh(x)),
      SMELT_ROW(erf, 2, 2, std::erf(x)),
      SMELT_ROW(erfc, 2, 4, std::erfc(x)),
      SMELT_ROW(pow, 1.5, 1.5, std::pow(x, y)),
  };
#undef SMELT_ROW
}

}  // namespace smelt::vector_math::test
