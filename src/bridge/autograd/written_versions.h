// Versions of written tensors. PyTorch counts the writes to a tensor, and a backward pass refuses
// what was written since it was saved. A graph that writes an input once where the program did it
// three times must leave the same count behind. An op that says nothing in its schema of what it
// changes, batch_norm of its statistics, leaves the count as it is.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <utility>
#include <vector>

namespace smelt {

struct VersionRises {
  std::vector<std::pair<size_t, uint32_t>> inputs;   // on memory that is written: by how much
  std::vector<std::pair<size_t, uint32_t>> outputs;  // new tensors: their version, if not 0
  // Outputs on memory of inputs that have a count of their own: `.data`, and views of it.
  struct Apart {
    size_t output;
    int32_t of;  // equal for those that share a count
    uint32_t version;
  };
  std::vector<Apart> apart;
};

// What they were, to be put back.
class SavedVersions {
 public:
  SavedVersions(const std::vector<at::Tensor>& tensors, const std::vector<size_t>& which) {
    for (const size_t i : which)
      if (!tensors[i].is_inference())
        versions_.emplace_back(tensors[i].unsafeGetTensorImpl()->version_counter(),
                               tensors[i]._version());
  }
  void restore() {
    for (auto& [counter, version] : versions_) counter.set_version(version);
  }

 private:
  std::vector<std::pair<c10::VariableVersion, int64_t>> versions_;  // shared with the tensor
};

// Those of the inputs of a graph, which outlive this, around its run.
class WrittenVersions {
 public:
  WrittenVersions(const std::vector<at::Tensor>& inputs, const VersionRises& rises)
      : rises_(rises) {
    counters_.reserve(rises.inputs.size());
    for (const auto& [input, rise] : rises.inputs)
      if (!inputs[input].is_inference())
        counters_.push_back({inputs[input].unsafeGetTensorImpl(), inputs[input]._version(), rise});
  }

  // When the writes have been made. Tensors on the same memory may share a counter.
  void settle(const std::vector<at::Tensor>& outputs) {
    for (const Counter& known : counters_) set(known.tensor, known.before);
    for (const Counter& known : counters_)
      if (known.tensor->version_counter().current_version() < known.before + known.rise)
        set(known.tensor, known.before + known.rise);
    for (const auto& [output, version] : rises_.outputs)
      if (outputs[output].defined() && !outputs[output].is_inference())
        set(outputs[output].unsafeGetTensorImpl(), version);
    part(outputs);
  }

 private:
  struct Counter {
    c10::TensorImpl* tensor;
    int64_t before, rise;
  };

  static void set(const c10::TensorImpl* tensor, int64_t version) {
    c10::VariableVersion counter = tensor->version_counter();  // the same one
    counter.set_version(version);
  }

  void part(const std::vector<at::Tensor>& outputs) const {
    std::map<int32_t, c10::VariableVersion> counts;
    for (const auto& [output, of, version] : rises_.apart)
      if (outputs[output].defined() && !outputs[output].is_inference())
        outputs[output].unsafeGetTensorImpl()->set_version_counter(
            counts.try_emplace(of, version).first->second);
  }

  const VersionRises& rises_;
  std::vector<Counter> counters_;
};

}  // namespace smelt
