// A number of a recording inside torch: an at::Scalar over a node that knows the value of the
// graph. Ops take it wherever they take a number. Arithmetic on it is written down; a comparison
// whose answer torch asks for (a derivative that tests alpha == 1) holds for the answer at hand,
// and the graph expects it in each run. Whoever asks for the number itself gives up the recording.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Scalar.h>

#include <cstdint>
#include <optional>

#include "base/dtype.h"
#include "base/number.h"
#include "graph/graph.h"

namespace smelt {

struct RecordedNumber {
  uint64_t recording = 0;
  ValueId value = -1;  // -1: a literal, which is the example
  DType dtype = DType::f64;
  std::optional<Number> example;  // what it is while the program is written down
};

at::Scalar to_scalar(const RecordedNumber& number);
// Nothing if it is a plain number, or a symbolic one that is not of a recording.
std::optional<RecordedNumber> recorded_number(const at::Scalar& scalar);
// The same for an argument of an op.
std::optional<RecordedNumber> recorded_number(const c10::IValue& value);

at::Scalar to_scalar(const Number& number);
// Of a plain bool, int or float; nothing for others.
std::optional<Number> plain_number(const at::Scalar& scalar);

}  // namespace smelt
