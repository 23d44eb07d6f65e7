#include "bridge/record_joint.h"

#include <ATen/SavedTensorHooks.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <chrono>

#include "base/counters.h"
#include "base/error.h"

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

// A leaf on the same memory: the hooks and the gradient of the caller's tensor are not the
// recording's business.
at::Tensor leaf_of(const at::Tensor& tensor) {
  at::Tensor leaf = tensor.detach();
  if (tensor.requires_grad()) leaf.set_requires_grad(true);
  return leaf;
}

void check_inputs(const std::vector<at::Tensor>& leaves, const std::vector<at::Tensor>& twins) {
  for (size_t i = 0; i < twins.size(); ++i) {
    if (twins[i].requires_grad() != leaves[i].requires_grad() || !twins[i].is_leaf())
      throw Error("an input becomes part of the autograd graph");
    if (twins[i].requires_grad() && twins[i]._version() != 0)
      throw Error("an input that requires a gradient is changed in place");
  }
}

}  // namespace

Recorded record_joint(const LogProgram& program, const std::vector<at::Tensor>& inputs,
                      std::span<const c10::Scalar> numbers,
                      const std::vector<at::Tensor>& gradients, const std::vector<bool>& used) {
  const auto start = std::chrono::steady_clock::now();
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& input : inputs) leaves.push_back(leaf_of(input));
  const auto recorder = std::make_shared<Recorder>(RecorderOptions());
  const Unwatched unwatched;
  const RecordingScope scope(recorder);
  std::vector<at::Tensor> twins, wanted, seeds, tracked;
  for (const at::Tensor& leaf : leaves) twins.push_back(recorder->add_argument(leaf));
  std::vector<c10::Scalar> recorded_numbers;
  for (const c10::Scalar& number : numbers)
    recorded_numbers.push_back(recorder->add_number(number));
  std::vector<at::Tensor> seed_twins;
  for (const at::Tensor& gradient : gradients)
    seed_twins.push_back(gradient.defined() ? recorder->add_argument(gradient) : at::Tensor());
  std::vector<at::Tensor> outputs = program.replay(twins, recorded_numbers);
  check_inputs(leaves, twins);
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
  Recorded recorded = recorder->finish(outputs);
  count(Counter::record_ns, (std::chrono::steady_clock::now() - start).count());
  return recorded;
}

Recorded record_step(const LogProgram& program, const std::vector<at::Tensor>& inputs) {
  const auto start = std::chrono::steady_clock::now();
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& input : inputs) leaves.push_back(leaf_of(input));
  RecorderOptions options;
  options.grads_are_known = true;
  const auto recorder = std::make_shared<Recorder>(std::move(options));
  const Unwatched unwatched;
  const RecordingScope scope(recorder);
  std::vector<at::Tensor> twins;
  for (const at::Tensor& leaf : leaves) twins.push_back(recorder->add_argument(leaf));
  std::vector<c10::Scalar> numbers;
  for (const c10::Scalar& example : program.scalar_examples())
    numbers.push_back(recorder->add_number(example));
  Recorded recorded = recorder->finish(program.replay(std::move(twins), numbers));
  count(Counter::record_ns, (std::chrono::steady_clock::now() - start).count());
  return recorded;
}

}  // namespace smelt
