// An in-place op leaves the strides of its target alone; the functional op that it becomes chooses
// its own. This gives the result the target's strides back.
#pragma once

#include <ATen/core/Tensor.h>

#include "aten/op_info.h"

namespace smelt {

// What a tensor's memory looks like. Of the whole that the tensor is a view of, not of the view.
class StridesBefore {
 public:
  // `target` is a functional tensor that an op is about to write.
  explicit StridesBefore(const at::Tensor& target);
  // After the op: writes down a copy in the old strides, if the sizes are the same and the strides
  // are not.
  void restore() const;

 private:
  at::Tensor target_;
  c10::StorageImpl* storage_;
  c10::SymDimVector sizes_;
  c10::SymDimVector strides_;
};

}  // namespace smelt
