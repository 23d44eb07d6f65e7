#include "loops/scalar.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace smelt::loops {
namespace {

int bits_of(DType dtype) { return dtype == DType::b8 ? 1 : 8 * bytes_of(dtype); }

// Functions that are not exact are computed in f64 and rounded once, for f32 too.
std::optional<double> elementary(Op op, double a) {
  switch (op) {
    case Op::rsqrt: return 1 / std::sqrt(a);
    case Op::exp: return std::exp(a);
    case Op::exp2: return std::exp2(a);
    case Op::expm1: return std::expm1(a);
    case Op::log: return std::log(a);
    case Op::log2: return std::log2(a);
    case Op::log10: return std::log10(a);
    case Op::log1p: return std::log1p(a);
    case Op::sin: return std::sin(a);
    case Op::cos: return std::cos(a);
    case Op::tan: return std::tan(a);
    case Op::asin: return std::asin(a);
    case Op::acos: return std::acos(a);
    case Op::atan: return std::atan(a);
    case Op::sinh: return std::sinh(a);
    case Op::cosh: return std::cosh(a);
    case Op::tanh: return std::tanh(a);
    case Op::asinh: return std::asinh(a);
    case Op::acosh: return std::acosh(a);
    case Op::atanh: return std::atanh(a);
    case Op::erf: return std::erf(a);
    case Op::erfc: return std::erfc(a);
    case Op::sigmoid: return 1 / (1 + std::exp(-a));
    default: return std::nullopt;
  }
}

// Of two f32 these are exact in f64 or, as + - * / and sqrt, rounded alike by way of it.
double arithmetic(Op op, double a, double b) {
  switch (op) {
    case Op::add: return a + b;
    case Op::sub: return a - b;
    case Op::mul: return a * b;
    case Op::div: return a / b;
    case Op::mod: return std::fmod(a, b);
    case Op::min: return std::isnan(a) || std::isnan(b) ? NAN : std::min(a, b);
    case Op::max: return std::isnan(a) || std::isnan(b) ? NAN : std::max(a, b);
    case Op::pow: return std::pow(a, b);
    case Op::atan2: return std::atan2(a, b);
    case Op::copysign: return std::copysign(a, b);
    case Op::neg: return -a;
    case Op::abs: return std::fabs(a);
    case Op::floor: return std::floor(a);
    case Op::ceil: return std::ceil(a);
    case Op::round: return std::nearbyint(a);
    case Op::trunc: return std::trunc(a);
    case Op::sqrt: return std::sqrt(a);
    default: break;
  }
  std::optional<double> result = elementary(op, a);
  SMELT_CHECK(result, std::string(facts_of(op).name) + " is not computed from floating values");
  return *result;
}

int64_t boolean(Op op, int64_t a, int64_t b) {
  switch (op) {
    case Op::add:
    case Op::max:
    case Op::bit_or: return a | b;
    case Op::mul:
    case Op::min:
    case Op::bit_and: return a & b;
    case Op::bit_xor: return a ^ b;
    case Op::bit_not: return !a;
    case Op::abs: return a;
    default: break;
  }
  SMELT_CHECK(false, std::string(facts_of(op).name) + " is not computed from b8");
}

// In 64 bits without sign, where everything wraps around; wrap_to() then keeps the width.
std::optional<int64_t> integer(Op op, DType dtype, int64_t a, int64_t b) {
  auto x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
  int width = bits_of(dtype);
  bool far = b < 0 || b >= width;
  switch (op) {
    case Op::add: return static_cast<int64_t>(x + y);
    case Op::sub: return static_cast<int64_t>(x - y);
    case Op::mul: return static_cast<int64_t>(x * y);
    case Op::div:
      if (b == 0) return std::nullopt;
      return b == -1 ? static_cast<int64_t>(0 - x) : a / b;
    case Op::mod:
      if (b == 0) return std::nullopt;
      return b == -1 ? 0 : a % b;
    case Op::min: return std::min(a, b);
    case Op::max: return std::max(a, b);
    case Op::bit_and: return a & b;
    case Op::bit_or: return a | b;
    case Op::bit_xor: return a ^ b;
    case Op::bit_not: return ~a;
    case Op::shift_left: return far ? 0 : static_cast<int64_t>(x << b);
    case Op::shift_right: return a >> (far ? width - 1 : b);
    case Op::neg: return static_cast<int64_t>(0 - x);
    case Op::abs: return a < 0 ? static_cast<int64_t>(0 - x) : a;
    default: break;
  }
  SMELT_CHECK(false, std::string(facts_of(op).name) + " is not computed from integers");
}

template <class T>
bool compared(Op op, T a, T b) {
  switch (op) {
    case Op::lt: return a < b;
    case Op::le: return a <= b;
    case Op::eq: return a == b;
    default: return a != b;
  }
}

}  // namespace

double round_to(DType dtype, double number) {
  switch (dtype) {
    case DType::f32: return static_cast<float>(number);
    case DType::f16: return from_f16_bits(f16_bits(static_cast<float>(number)));
    case DType::bf16: return from_bf16_bits(bf16_bits(static_cast<float>(number)));
    default: return number;
  }
}

int64_t wrap_to(DType dtype, int64_t integer) {
  switch (dtype) {
    case DType::u8: return static_cast<uint8_t>(integer);
    case DType::i8: return static_cast<int8_t>(integer);
    case DType::i16: return static_cast<int16_t>(integer);
    case DType::i32: return static_cast<int32_t>(integer);
    case DType::b8: return integer != 0;
    default: return integer;
  }
}

bool fits_integer(double number, DType to) {
  number = std::trunc(number);
  if (!(number >= -0x1p63 && number < 0x1p63)) return false;
  auto integer = static_cast<int64_t>(number);
  return to == DType::b8 || wrap_to(to, integer) == integer;
}

Scalar make_scalar(DType dtype, double number) { return convert({number, 0}, DType::f64, dtype); }
Scalar make_scalar(DType dtype, int64_t integer) {
  return convert({0, integer}, DType::i64, dtype);
}

Scalar convert(const Scalar& value, DType from, DType to) {
  bool floating = is_floating(from);
  if (to == DType::b8) return {0, floating ? value.number != 0 : value.integer != 0};
  if (is_floating(to)) {
    // Half precision is reached by way of f32, as in C++ with c10's types. An i64 is rounded once.
    if (floating) return {round_to(to, value.number), 0};
    if (to == DType::f64) return {static_cast<double>(value.integer), 0};
    return {round_to(to, static_cast<float>(value.integer)), 0};
  }
  if (!floating) return {0, wrap_to(to, value.integer)};
  bool fits = fits_integer(value.number, DType::i64);
  return {0, wrap_to(to, fits ? static_cast<int64_t>(value.number)
                              : std::numeric_limits<int64_t>::min())};
}

std::optional<Scalar> compute(Op op, DType dtype, const Scalar& a, const Scalar& b) {
  if (facts_of(op).typing == Typing::compare) {
    return Scalar{0, is_floating(dtype) ? compared(op, a.number, b.number)
                                        : compared(op, a.integer, b.integer)};
  }
  if (is_floating(dtype)) return Scalar{round_to(dtype, arithmetic(op, a.number, b.number)), 0};
  if (dtype == DType::b8) return Scalar{0, boolean(op, a.integer, b.integer)};
  std::optional<int64_t> result = integer(op, dtype, a.integer, b.integer);
  if (!result) return std::nullopt;
  return Scalar{0, wrap_to(dtype, *result)};
}

}  // namespace smelt::loops
