// A log recorded together with the gradients of its outputs, by PyTorch's own formulas: one graph.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "bridge/log_program.h"
#include "capture/dispatch/recorder.h"

namespace smelt {

// `inputs`: tensors of the types the log was traced with, then one for each of its run-time
// scalars. `gradients`: one per output, of the type
// its gradient has, undefined where the output takes no part in autograd. `used`: per defined
// gradient, does one come in there? The recording's arguments are the inputs, then the defined
// gradients; its outputs those of the log, then one gradient for each input that requires one, none
// where it would be None. An Error where that can't be recorded.
Recorded record_joint(const LogProgram& program, const std::vector<at::Tensor>& inputs,
                      const std::vector<at::Tensor>& gradients, const std::vector<bool>& used);

}  // namespace smelt
