// The states of random generators at a point, to come back to when a run fails.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <mutex>
#include <utility>
#include <vector>

namespace smelt {

class GeneratorStates {
 public:
  explicit GeneratorStates(const std::vector<at::Generator>& generators) {
    for (at::Generator generator : generators) {
      std::lock_guard lock(generator.mutex());
      states_.emplace_back(generator, generator.get_state());
    }
  }
  void restore() {
    for (auto& [generator, state] : states_) {
      std::lock_guard lock(generator.mutex());
      generator.set_state(state);
    }
  }

 private:
  std::vector<std::pair<at::Generator, at::Tensor>> states_;
};

}  // namespace smelt
