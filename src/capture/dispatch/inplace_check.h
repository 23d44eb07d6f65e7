// Eager refuses in-place ops that would widen their target or narrow the result (int.add_(0.5));
// functionalization, which turns them into out-of-place ops, would not. This finds such calls and
// raises eager's own error. Nor would it keep the target's strides (restride.h), nor read memory
// that the op has just written.
#pragma once

#include <ATen/core/ivalue.h>

#include <vector>

#include "aten/op_info.h"
#include "base/type.h"
#include "capture/dispatch/restride.h"

namespace smelt {

class Recorder;

class InplaceCheck {
 public:
  // Before the op: notes what it is going to write. Cheap for ops that write nothing.
  InplaceCheck(Recorder& recorder, const OpInfo& op, const std::vector<c10::IValue>& stack,
               size_t first);
  // After it: throws what eager throws, if it does, and restores strides.
  void after() const;

 private:
  struct Written {
    at::Tensor tensor;
    TensorType before;
    size_t place;  // in its list
  };
  void refuse_tangled_memory() const;
  bool may_reshape() const;
  void raise_as_eager() const;

  Recorder& recorder_;
  const OpInfo& op_;
  int64_t casts_before_;
  std::vector<Written> written_;
  std::vector<StridesBefore> strides_;
  std::vector<c10::IValue> arguments_;
};

}  // namespace smelt
