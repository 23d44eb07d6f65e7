// The states of random generators at a point, to come back to when a run fails.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <mutex>
#include <utility>
#include <vector>

namespace smelt {

// Held as generators: a state as a tensor takes twice the memory, since it has the format of old
// versions of PyTorch.
class GeneratorStates {
 public:
  explicit GeneratorStates(const std::vector<at::Generator>& generators) {
    for (at::Generator generator : generators) {
      std::lock_guard lock(generator.mutex());
      states_.emplace_back(generator, generator.clone());
    }
  }
  void restore() {
    for (auto& [generator, state] : states_) {
      std::lock_guard lock(generator.mutex());
      generator.set_state(state.get_state());
    }
  }
  void forget() { states_.clear(); }

 private:
  std::vector<std::pair<at::Generator, at::Generator>> states_;
};

}  // namespace smelt
