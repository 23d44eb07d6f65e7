// Interpolation to sizes that vary: PyTorch's own code for it takes sizes as they are now, and
// computes scaled ones as floating-point numbers.
#pragma once

#include <ATen/core/ivalue.h>

#include <vector>

#include "aten/op_info.h"

namespace smelt {

// upsample(input, output_size, ..., scale_factors) as OpFacts::instead, which is given the sizes.
// False: nothing varies, or it has to be called as it is.
bool record_scaled(const OpInfo& op, std::vector<c10::IValue>* stack, size_t first);

}  // namespace smelt
