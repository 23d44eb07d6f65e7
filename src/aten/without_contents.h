// Tensors that only show what a tensor looks like: examples for the recorder, which computes
// nothing.
#pragma once

#include <ATen/core/Tensor.h>

#include "base/type.h"

namespace smelt {

// A tensor of this kind, on memory that is not there.
at::Tensor without_contents(at::IntArrayRef sizes, at::IntArrayRef strides,
                            const at::TensorOptions& options);
// Of this type, all of whose sizes are known.
at::Tensor without_contents(const TensorType& type);

}  // namespace smelt
