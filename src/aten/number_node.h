// A number of a recording inside torch: an at::Scalar over a node that knows the value of the
// graph. Ops take it wherever they take a number. Arithmetic on it is written down; a comparison
// whose answer torch asks for (a derivative that tests alpha == 1) holds for the answer at hand,
// and the graph expects it in each run. Whoever asks for the number itself gives up the recording.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Scalar.h>

#include <cstdint>
#include <optional>
#include <string>

#include "base/dtype.h"
#include "base/number.h"
#include "graph/graph.h"

namespace smelt {

// Who writes down what is done to numbers of a recording.
class NumberRecording {
 public:
  virtual ~NumberRecording() = default;
  virtual uint64_t id() const = 0;
  // Python's arithmetic; `b` does not count for an op of one operand. Scalars may be numbers of the
  // recording or plain.
  virtual at::Scalar compute(NumberOp op, const at::Scalar& a, const at::Scalar& b) = 0;
  // The recording holds for runs in which the number is true, or is not.
  virtual void expect(const at::Scalar& number, bool truth) = 0;
  // Gives up on the region: throws.
  virtual void refuse(const std::string& reason) = 0;
  // The op that the code of the region has called last, for messages.
  virtual std::string last_op() const = 0;
};
// The one that is open on this thread, or nullptr; set by whoever opens them, when it is loaded.
inline NumberRecording* (*current_number_recording)() = nullptr;

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
