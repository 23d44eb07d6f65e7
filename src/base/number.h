// Numbers as Python has them, and Python's arithmetic on them: what a traced program computes from
// numbers that are known only when it runs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

namespace smelt {

// bool, int of at most 64 bits, float.
using Number = std::variant<bool, int64_t, double>;

enum class NumberOp : uint8_t {
  add,
  sub,
  mul,
  div,        // true division: always a float
  floor_div,  // rounded down, as % is
  mod,
  pow,
  min,  // min(a, b), max(a, b): the first unless the second is less, greater
  max,
  eq,
  ne,
  lt,
  le,
  gt,
  ge,
  // of one operand
  neg,
  abs,
  truth,     // bool(a)
  negation,  // not a
  as_float,
  as_int,  // int(a): towards 0
};

// "add", "floor_div", ...
std::string_view name_of(NumberOp op);
std::optional<NumberOp> parse_number_op(std::string_view name);
inline bool is_unary(NumberOp op) { return op >= NumberOp::neg; }

// What Python gives; for an op of one operand `b` does not count. Nothing where Python raises an
// exception (division by zero, overflow), or gives something that is no Number: an int of more
// bits, a complex.
std::optional<Number> compute(NumberOp op, Number a, Number b = false);

bool is_float(const Number& number);
double to_double(const Number& number);
// Of an int or bool.
int64_t to_int(const Number& number);
std::string str(const Number& number);

}  // namespace smelt
