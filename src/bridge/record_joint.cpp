#include "bridge/record_joint.h"

#include <ATen/SavedTensorHooks.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <chrono>

#include "aten/convert.h"
#include "base/error.h"
#include "diagnostics/counters.h"
#include "graph/known_sizes.h"

namespace smelt {
namespace {

// What watches autograd from outside must not see a recording.
class Unwatched {
 public:
  Unwatched() { torch::autograd::AnomalyMode::set_enabled(false, check_nan_); }
  ~Unwatched() {
    torch::autograd::AnomalyMode::set_enabled(anomaly_, check_nan_);
    at::SavedTensorDefaultHooks::set_tracing(tracing_);
  }
  Unwatched(const Unwatched&) = delete;
  Unwatched& operator=(const Unwatched&) = delete;

 private:
  const bool anomaly_ = torch::autograd::AnomalyMode::is_enabled();
  const bool check_nan_ = torch::autograd::AnomalyMode::should_check_nan();
  const bool tracing_ = at::SavedTensorDefaultHooks::set_tracing(true);
};

// Leaves on the same memory: the hooks and the gradients of the caller's tensors are not the
// recording's business.
std::vector<at::Tensor> leaves_of(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& tensor : tensors) {
    leaves.push_back(tensor.detach());
    if (tensor.requires_grad()) leaves.back().set_requires_grad(true);
  }
  return leaves;
}

void check_inputs(const std::vector<at::Tensor>& leaves, const std::vector<at::Tensor>& twins) {
  for (size_t i = 0; i < twins.size(); ++i) {
    if (twins[i].requires_grad() != leaves[i].requires_grad() || !twins[i].is_leaf())
      throw Error("an input becomes part of the autograd graph");
    if (twins[i].requires_grad() && twins[i]._version() != 0)
      throw Error("an input that requires a gradient is changed in place");
  }
}

// A recorder that is on, with twins of the inputs as leaves and of the numbers as its arguments.
class LeafRecording {
 public:
  LeafRecording(RecorderOptions options, const LogProgram& program,
                const std::vector<at::Tensor>& inputs)
      : leaves(leaves_of(inputs)),
        recorder(std::make_shared<Recorder>(std::move(options))),
        scope_(recorder) {
    const std::vector<SymbolicDims>& sizes = program.sizes().inputs;
    for (size_t i = 0; i < leaves.size(); ++i)
      twins.push_back(
          recorder->add_sized_argument(leaves[i], i < sizes.size() ? sizes[i] : SymbolicDims()));
    numbers = program.add_numbers(*recorder);
  }

  Recorded finish(const std::vector<at::Tensor>& outputs) {
    Recorded recorded = recorder->finish(outputs);
    count(Counter::record_ns, (std::chrono::steady_clock::now() - start_).count());
    return recorded;
  }

  const std::vector<at::Tensor> leaves;  // made before the recorder is on
  const std::shared_ptr<Recorder> recorder;
  std::vector<at::Tensor> twins;
  std::vector<c10::Scalar> numbers;

 private:
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  const Unwatched unwatched_;
  const RecordingScope scope_;
};

}  // namespace

namespace {

// The gradient of an output has its sizes.
SymbolicDims varying_dims(const at::Tensor& output) {
  SymbolicDims dims;
  for (int64_t dim = 0; dim < output.dim(); ++dim)
    if (const Size size = to_size(output.sym_size(dim)); !size.is_known())
      dims.emplace(static_cast<int>(dim), size);
  return dims;
}

}  // namespace

Recorded record_joint(const LogProgram& program, const std::vector<at::Tensor>& inputs,
                      const std::vector<at::Tensor>& gradients, const std::vector<bool>& used) {
  RecorderOptions options;
  options.generators = program.generators();
  options.symbols = &program.sizes().symbols;
  LeafRecording recording(std::move(options), program, inputs);
  const std::vector<at::Tensor>& twins = recording.twins;
  std::vector<at::Tensor> wanted, seeds, tracked;
  std::vector<at::Tensor> seed_twins;
  std::vector<at::Tensor> outputs = program.replay(twins, recording.numbers);
  for (size_t i = 0; i < gradients.size(); ++i)
    seed_twins.push_back(
        gradients[i].defined() && outputs[i].defined()
            ? recording.recorder->add_sized_argument(gradients[i], varying_dims(outputs[i]))
            : at::Tensor());
  check_inputs(recording.leaves, twins);
  for (const at::Tensor& twin : twins)
    if (twin.requires_grad()) wanted.push_back(twin);
  size_t next = 0;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const bool is_tracked = outputs[i].defined() && outputs[i].requires_grad();
    if (is_tracked != gradients[i].defined())
      throw Error("an output requires a gradient only sometimes");
    if (!is_tracked || !used[next++]) continue;
    tracked.push_back(outputs[i]);
    seeds.push_back(seed_twins[i]);
  }
  std::vector<at::Tensor> found(wanted.size());
  if (!tracked.empty())
    found = torch::autograd::grad(tracked, wanted, seeds, /*retain_graph=*/false,
                                  /*create_graph=*/false, /*allow_unused=*/true);
  outputs.insert(outputs.end(), found.begin(), found.end());
  Recorded recorded = recording.finish(outputs);
  settle_symbols(recorded.graph);
  return recorded;
}

Recorded record_step(const LogProgram& program, const std::vector<at::Tensor>& inputs) {
  RecorderOptions options;
  options.generators = program.generators();
  options.grads_are_known = true;
  options.grad_owners = program.grad_owners();
  options.symbols = &program.sizes().symbols;
  LeafRecording recording(std::move(options), program, inputs);
  return recording.finish(program.replay(recording.twins, recording.numbers));
}

}  // namespace smelt
