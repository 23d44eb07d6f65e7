// The elementary functions, by family; vector_math.cpp chooses among them. Those of one argument
// give x's type. Error bounds: the table in docs/design/vector_math.md, under test.
#pragma once

#include "codegen/cpu/vector_math/value.h"

namespace smelt::vector_math {

// exp.cpp
Num exp(const Num& x);
Num exp2(const Num& x);
Num expm1(const Num& x);
Num expm1_of_positive(const Num& x);  // x in [0, 50], or NaN
Num sigmoid(const Num& x);
// factor * exp(x + rest) for a tiny rest, right also where exp(x) alone is out of range. The factor
// is between 2^-60 and 2^60.
Num scaled_exp(const Num& x, const Num& factor, Term rest = 0.0);
// 2^(x + rest) for a tiny rest; x in [-250, 250] or [-2040, 2040], or NaN.
Num exp2_of_sum(const Num& x, const Num& rest);
// 2^x for x in [-126, 126] or [-1022, 1022]; no care for what is outside.
Num exp2_of_small(const Num& x);

// log.cpp
Num log(const Num& x);
Num log2(const Num& x);
Num log10(const Num& x);
Num log1p(const Num& x);
// x = 2^k * m with m in [sqrt(1/2), sqrt(2)). x: positive and normal (of others the parts mean
// nothing).
struct Split {
  Num k, m;
  Bits exponent;  // k + exponent_bias
};
Split split_exponent(const Num& x);
// The same with denormals; `exponent` is not that of x for them.
Split split_any(const Num& x);

// trig.cpp
Num sin(const Num& x);
Num cos(const Num& x);
Num tan(const Num& x);

// arc.cpp
Num asin(const Num& x);
Num acos(const Num& x);
Num atan(const Num& x);
Num atan2(const Num& y, const Num& x);

// hyperbolic.cpp
Num sinh(const Num& x);
Num cosh(const Num& x);
Num tanh(const Num& x);
Num asinh(const Num& x);
Num acosh(const Num& x);
Num atanh(const Num& x);

// erf.cpp
Num erf(const Num& x);
Num erfc(const Num& x);

// pow.cpp
Num pow(const Num& x, const Num& y);
Num fmod(const Num& x, const Num& y);

}  // namespace smelt::vector_math
