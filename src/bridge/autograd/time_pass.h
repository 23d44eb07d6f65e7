// Measures backward passes through tensors.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function_hook.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace smelt {

// Tells `spent`, of each backward pass that comes to one of the tensors, the nanoseconds from there
// to the end of the pass. False: none of them takes part in autograd.
bool time_passes(const std::vector<at::Tensor>& tensors, std::function<void(int64_t)> spent);

// A hook that this has put there, which does nothing that shows.
bool is_pass_timer(const torch::autograd::FunctionPreHook& hook);

}  // namespace smelt
