// The gradients that a program drops before anything else.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

#include "bridge/log_program.h"

namespace smelt {

// Drops them, and can bring them back if the run is none because a guess was wrong.
class DroppedGradients {
 public:
  DroppedGradients(const LogProgram& log, const std::vector<at::Tensor>& inputs) {
    for (size_t i : log.cleared_first()) {
      if (log.expects()) dropped_.emplace_back(inputs[i], inputs[i].grad());
      inputs[i].mutable_grad().reset();
    }
  }
  void restore() {
    for (const auto& [owner, grad] : dropped_) owner.mutable_grad() = grad;
  }

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> dropped_;
};

}  // namespace smelt
