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

// How a program comes by a number that is known only when it runs: it reads it from a tensor, or
// computes it from other numbers.
struct NumberStep {
  struct Operand {
    enum class From : uint8_t {
      literal,
      scalar,  // the index-th number that the program is given
      number,  // the index-th step, an earlier one
    };
    From from = From::literal;
    uint32_t index = 0;
    Number literal = false;
  };

  uint32_t id = 0;    // by which the ops that take it know it
  int32_t item = -1;  // the item-th number that ops give; -1: it is computed
  NumberOp op = NumberOp::add;
  Operand a, b;
  Number seen = false;  // when it was traced; it is of this type in each run
};

bool is_float(const Number& number);
double to_double(const Number& number);
// Of an int or bool.
int64_t to_int(const Number& number);
std::string str(const Number& number);

}  // namespace smelt
