#include "base/number.h"

#include <array>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace smelt {
namespace {

constexpr std::array<std::string_view, 21> kNames = {
    "add", "sub", "mul", "div", "floor_div", "mod", "pow",   "min",      "max",      "eq",    "ne",
    "lt",  "le",  "gt",  "ge",  "neg",       "abs", "truth", "negation", "as_float", "as_int"};

// Up to here a double has each integer.
constexpr int64_t kExact = int64_t{1} << 53;

bool is_exact(const Number& number) {
  if (is_float(number)) return true;
  const int64_t value = to_int(number);
  return value >= -kExact && value <= kExact;
}

std::optional<Number> compare(NumberOp op, const Number& a, const Number& b) {
  const auto relate = [op](auto x, auto y) -> Number {
    switch (op) {
      case NumberOp::eq: return x == y;
      case NumberOp::ne: return x != y;
      case NumberOp::lt: return x < y;
      case NumberOp::le: return x <= y;
      case NumberOp::gt: return x > y;
      default: return x >= y;
    }
  };
  if (!is_float(a) && !is_float(b)) return relate(to_int(a), to_int(b));
  if (!is_exact(a) || !is_exact(b)) return std::nullopt;
  return relate(to_double(a), to_double(b));
}

std::optional<Number> int_pow(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0 || base < -kExact || base > kExact) return std::nullopt;
    return std::pow(static_cast<double>(base), static_cast<double>(exponent));
  }
  int64_t result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) && __builtin_mul_overflow(result, base, &result)) return std::nullopt;
    if (exponent > 1 && __builtin_mul_overflow(base, base, &base)) return std::nullopt;
  }
  return result;
}

std::optional<Number> on_ints(NumberOp op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case NumberOp::add:
      if (__builtin_add_overflow(a, b, &result)) return std::nullopt;
      return result;
    case NumberOp::sub:
      if (__builtin_sub_overflow(a, b, &result)) return std::nullopt;
      return result;
    case NumberOp::mul:
      if (__builtin_mul_overflow(a, b, &result)) return std::nullopt;
      return result;
    case NumberOp::pow: return int_pow(a, b);
    default: break;
  }
  if (b == 0 || (b == -1 && a == std::numeric_limits<int64_t>::min())) return std::nullopt;
  if (op == NumberOp::div) {
    if (!is_exact(a) || !is_exact(b)) return std::nullopt;
    return static_cast<double>(a) / static_cast<double>(b);
  }
  int64_t quotient = a / b, rest = a % b;
  if (rest != 0 && (rest < 0) != (b < 0)) {
    --quotient;
    rest += b;
  }
  return op == NumberOp::mod ? rest : quotient;
}

std::optional<Number> float_pow(double a, double b) {
  if (a == 0 && b < 0) return std::nullopt;
  if (a < 0 && std::isfinite(a) && std::isfinite(b) && b != std::floor(b)) return std::nullopt;
  const double result = std::pow(a, b);
  if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) return std::nullopt;
  return result;
}

// As CPython's float_divmod.
std::optional<Number> float_divmod(NumberOp op, double a, double b) {
  if (b == 0) return std::nullopt;
  double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest != 0) {
    if ((b < 0) != (rest < 0)) {
      rest += b;
      quotient -= 1.0;
    }
  } else {
    rest = std::copysign(0.0, b);
  }
  if (op == NumberOp::mod) return rest;
  if (quotient == 0) return std::copysign(0.0, a / b);
  double rounded = std::floor(quotient);
  if (quotient - rounded > 0.5) rounded += 1.0;
  return rounded;
}

std::optional<Number> on_floats(NumberOp op, double a, double b) {
  switch (op) {
    case NumberOp::add: return a + b;
    case NumberOp::sub: return a - b;
    case NumberOp::mul: return a * b;
    case NumberOp::div:
      if (b == 0) return std::nullopt;
      return a / b;
    case NumberOp::pow: return float_pow(a, b);
    default: return float_divmod(op, a, b);
  }
}

std::optional<Number> on_one(NumberOp op, const Number& a) {
  const bool truth = is_float(a) ? to_double(a) != 0 : to_int(a) != 0;
  switch (op) {
    case NumberOp::truth: return truth;
    case NumberOp::negation: return !truth;
    case NumberOp::as_float: return to_double(a);
    case NumberOp::as_int: {
      if (!is_float(a)) return to_int(a);
      const double whole = std::trunc(to_double(a));
      if (!(std::abs(whole) < 0x1p63)) return std::nullopt;
      return static_cast<int64_t>(whole);
    }
    default: break;
  }
  if (is_float(a)) return op == NumberOp::neg ? -to_double(a) : std::abs(to_double(a));
  const int64_t value = to_int(a);
  if (op == NumberOp::abs && value >= 0) return value;
  if (value == std::numeric_limits<int64_t>::min()) return std::nullopt;
  return -value;
}

}  // namespace

std::string_view name_of(NumberOp op) { return kNames[static_cast<size_t>(op)]; }

std::optional<NumberOp> parse_number_op(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i)
    if (kNames[i] == name) return static_cast<NumberOp>(i);
  return std::nullopt;
}

bool is_float(const Number& number) { return std::holds_alternative<double>(number); }

double to_double(const Number& number) {
  return std::visit([](auto value) { return static_cast<double>(value); }, number);
}

int64_t to_int(const Number& number) {
  SMELT_CHECK(!is_float(number), "a float where an int is expected");
  return std::holds_alternative<bool>(number) ? int64_t{std::get<bool>(number)}
                                              : std::get<int64_t>(number);
}

std::string str(const Number& number) {
  if (std::holds_alternative<bool>(number)) return std::get<bool>(number) ? "true" : "false";
  return is_float(number) ? std::to_string(to_double(number)) : std::to_string(to_int(number));
}

std::optional<Number> compute(NumberOp op, Number a, Number b) {
  if (is_unary(op)) return on_one(op, a);
  if (op >= NumberOp::eq && op <= NumberOp::ge) return compare(op, a, b);
  if (op == NumberOp::min || op == NumberOp::max) {
    const auto second = compare(op == NumberOp::min ? NumberOp::lt : NumberOp::gt, b, a);
    if (!second) return std::nullopt;
    return std::get<bool>(*second) ? b : a;
  }
  if (!is_float(a) && !is_float(b)) return on_ints(op, to_int(a), to_int(b));
  return on_floats(op, to_double(a), to_double(b));
}

}  // namespace smelt
