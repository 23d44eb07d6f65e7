// Changes that autograd is not told of. An op that says nothing in its schema of what it changes,
// batch_norm of its statistics, leaves the version of that tensor as it is, and so must a graph in
// which the change is a write like others: a tensor that was saved before is not outdated by it.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

namespace smelt {

class QuietWrites {
 public:
  QuietWrites(const std::vector<at::Tensor>& inputs, const std::vector<size_t>& quiet) {
    for (const size_t i : quiet)
      if (!inputs[i].is_inference())
        versions_.emplace_back(inputs[i].unsafeGetTensorImpl()->version_counter(),
                               inputs[i]._version());
  }
  // When the changes have been made.
  void restore() {
    for (auto& [counter, version] : versions_) counter.set_version(version);
  }

 private:
  std::vector<std::pair<c10::VariableVersion, int64_t>> versions_;  // shared with the tensor
};

}  // namespace smelt
