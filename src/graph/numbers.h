// Numbers that are known only when a graph runs. A value whose type has the flag `wrapped_number`
// stands for a Python number: a 0-dim CPU value of f64, i64 or b8. A reference to it may stand
// where an op takes a Scalar, or an element of a list of them, and where it takes a tensor; there
// it counts for the type of the result as a number does. It never stands where an op takes an int
// or a float: those are part of the program.
//
// Four ops of smelt's own are about such values. A run whose numbers are not what the graph was
// written down for fails before it has changed anything of the caller's.
#pragma once

#include <optional>
#include <span>

#include "base/arg.h"
#include "base/number.h"
#include "base/type.h"
#include "graph/graph.h"
#include "graph/op_name.h"

namespace smelt::numbers {

// number("add", a, b) -> %number: Python's arithmetic (base/number.h) on numbers and literals. The
// run fails where Python would raise an exception.
inline const OpName kCompute("smelt::number");
// item(%tensor) -> %number: the element of a tensor that has one.
inline const OpName kItem("smelt::item");
// expect(%number, truth): the run fails unless bool(number) is as given. Traits: effect.
inline const OpName kExpect("smelt::expect");
// fits(%number, dtype): the run fails unless the number can be converted to the dtype, as PyTorch
// checks it where an op takes a Scalar. Traits: effect.
inline const OpName kFits("smelt::fits");

// draw(generator, count, blocks) -> %seed, %place: the next `count` times four random words of a
// generator of a GPU are taken by the program's own kernels, which compute them (loops/philox.h):
// the seed is their key, and `place` times four the first of them in each stream. The generator
// goes on behind them. What kernels draw depends on how many blocks of PyTorch's own run at once:
// the run fails where these are not so many. Traits: random.
inline const OpName kDraw("smelt::draw");

// One of the first four.
bool is_number_op(OpName op);
// expect or fits.
bool is_check(OpName op);

// f64, i64, b8.
DType dtype_of(const Number& number);
TensorType type_of(DType dtype);
inline bool is_number(const TensorType& type) { return type.wrapped_number; }
// Does some argument refer to a number?
bool takes_number(const Graph& graph, const Node& node);

Arg to_arg(const Number& number);
// Of a literal; nothing if it is none that is known.
std::optional<Number> literal(const Arg& arg);

// What an operand of number() is before its value is known.
struct Operand {
  DType dtype = DType::f64;
  std::optional<Number> value;  // of a literal
};
// The dtype of the result; nothing where Python's type depends on the values.
std::optional<DType> result_of(NumberOp op, const Operand& a, const Operand& b);

// The number, truncated where it has to be, is one of the dtype's range. Of bool anything is.
bool fits(const Number& number, DType dtype);
// Are there numbers of the first dtype that the second does not hold?
bool may_not_fit(DType number, DType dtype);

}  // namespace smelt::numbers
