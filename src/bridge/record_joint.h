// A log recorded together with the gradients of its outputs, by PyTorch's own formulas: one graph.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "bridge/log_program.h"
#include "capture/dispatch/recorder.h"

namespace smelt {

// `inputs`: tensors of the types the log was traced with. `gradients`: one per output, of the type
// its gradient has, undefined where the output takes no part in autograd. `used`: per defined
// gradient, does one come in there? The recording's arguments are the inputs, then the numbers (one
// per run-time scalar of the log, given as it is now), then the defined gradients; its outputs
// those of the log, then one gradient for each input that requires one, none where it would be
// None. An Error where that can't be recorded.
Recorded record_joint(const LogProgram& program, const std::vector<at::Tensor>& inputs,
                      const std::vector<at::Tensor>& gradients, const std::vector<bool>& used);

// A log that runs its own backward passes and sets gradients, as it is.
Recorded record_step(const LogProgram& program, const std::vector<at::Tensor>& inputs);

}  // namespace smelt
