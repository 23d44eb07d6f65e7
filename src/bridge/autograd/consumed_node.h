// The autograd node of a tensor whose graph a backward pass inside the compiled code has used up.
#pragma once

#include <ATen/core/Tensor.h>

namespace smelt {

// The tensor requires a gradient, and a backward pass from it raises PyTorch's "a second time".
void mark_consumed(const at::Tensor& tensor);

}  // namespace smelt
