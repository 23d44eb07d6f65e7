// An op of PyTorch's dispatcher by its full name, "aten::add.Tensor".
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <string>

#include "base/dtype.h"
#include "graph/op_name.h"

namespace smelt {

// May passes write calls of the op: is it here, for tensors on the CPU, and its library not
// switched off?
bool has_cpu_op(OpName name);
// Does oneDNN compute with elements of this type on this machine?
bool onednn_takes(DType dtype);
// An Error if this PyTorch has none of that name.
c10::OperatorHandle find_op(const std::string& name);
// What makes zeros of a given size.
c10::OperatorHandle op_of_zeros();

}  // namespace smelt
