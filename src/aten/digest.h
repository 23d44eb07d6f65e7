// A short text that identifies the contents of a constant.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace smelt {

// Equal digests, equal tensors. Contents that can't be read cheaply (another device, a large
// tensor) get a digest of their own.
std::string digest_of(const at::Tensor& tensor);

}  // namespace smelt
