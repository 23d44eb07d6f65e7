// Eager refuses in-place ops that would widen their target or narrow the result (int.add_(0.5));
// functionalization, which turns them into out-of-place ops, would not. This finds such calls and
// raises eager's own error.
#pragma once

#include <ATen/core/ivalue.h>

#include <vector>

#include "base/type.h"
#include "capture/dispatch/op_info.h"

namespace smelt {

class Recorder;

class InplaceCheck {
 public:
  // Before the op: notes what it is going to write. Cheap for ops that write nothing.
  InplaceCheck(const OpInfo& op, const std::vector<c10::IValue>& stack, size_t first);
  // After it: throws what eager throws, if it does.
  void after(Recorder& recorder) const;

 private:
  struct Written {
    at::Tensor tensor;
    TensorType before;
  };
  bool is_doubtful(const Recorder& recorder) const;
  TensorType type_before(const at::Tensor& tensor) const;

  const OpInfo& op_;
  std::vector<Written> written_;
  std::vector<c10::IValue> arguments_;
};

}  // namespace smelt
