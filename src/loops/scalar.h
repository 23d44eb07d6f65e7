// What the ops of nodes.def compute, one value at a time. The interpreter runs on it, and constants
// are folded with it, so that both agree.
#pragma once

#include <cstdint>
#include <optional>

#include "loops/kernel.h"

namespace smelt::loops {

// A value of any dtype: `number` of the floating ones (rounded to the dtype), `integer` of the
// others (in the range of the dtype; b8 is 0 or 1).
struct Scalar {
  double number = 0;
  int64_t integer = 0;
};

// Rounded to a floating dtype; wrapped around to another.
double round_to(DType dtype, double number);
int64_t wrap_to(DType dtype, int64_t integer);
Scalar make_scalar(DType dtype, double number);  // truncates for an integer dtype
Scalar make_scalar(DType dtype, int64_t integer);

// As Op::cast. Out of range, a floating value becomes INT64_MIN wrapped around to the dtype.
Scalar convert(const Scalar& value, DType from, DType to);
bool fits_integer(double number, DType to);  // truncated, it is in the range of the dtype

// The ops with a typing of their own and select aside: everything that is computed from values
// alone. `dtype` is that of the arguments. Nothing: the op reports failure.
std::optional<Scalar> compute(Op op, DType dtype, const Scalar& a, const Scalar& b);

// Half precision and back; to it rounds to nearest, ties to even.
uint16_t f16_bits(float value);
float from_f16_bits(uint16_t bits);
uint16_t bf16_bits(float value);
float from_bf16_bits(uint16_t bits);

}  // namespace smelt::loops
