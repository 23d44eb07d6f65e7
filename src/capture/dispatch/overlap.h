// Do two tensors show common memory?
#pragma once

#include <ATen/core/Tensor.h>

namespace smelt {

// Decided by the range of bytes each spans: "no" is certain, interleaved views count as "yes".
bool share_bytes(const at::Tensor& a, const at::Tensor& b);

}  // namespace smelt
