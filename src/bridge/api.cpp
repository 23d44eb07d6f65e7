// The public C++ interface (include/smelt/smelt.h).
#include <torch/version.h>

#include <chrono>

#include "base/counters.h"
#include "base/error.h"
#include "bridge/recorded_graph.h"
#include "graph/effects.h"

namespace smelt {

RecordedGraph::RecordedGraph(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

std::vector<at::Tensor> RecordedGraph::run(const std::vector<at::Tensor>& arguments) const {
  return impl_->run(arguments);
}

std::string RecordedGraph::str() const { return impl_->graph.str(); }

std::string RecordedGraph::explain() const { return impl_->record.str(); }

size_t RecordedGraph::size() const {
  size_t ops = 0;
  for (const Node& node : impl_->graph.nodes) ops += node.op.str().rfind("smelt::", 0) != 0;
  return ops;
}

namespace {

// Code in C++ holds tensors by handle, so nothing can stand behind the user's own t.grad() while
// the function runs; a function that changes it by hand is noticed here.
void check_grads_untouched(const std::vector<std::pair<at::Tensor, at::Tensor>>& before,
                           Recorder& recorder) {
  for (const auto& [real, grad] : before)
    if (!real.grad().is_same(grad))
      recorder.refuse(
          "the function sets .grad() of a tensor from outside; use backward() or autograd::grad() "
          "and "
          "change gradients after the run");
}

}  // namespace

RecordedGraph record(const Function& function, const std::vector<at::Tensor>& arguments,
                     const DynamicShapes& dynamic_shapes) {
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::pair<at::Tensor, at::Tensor>> grads;
  RecorderOptions options;
  options.on_lift = [&](const at::Tensor& real, const at::Tensor&) {
    if (real.is_leaf() && real.requires_grad()) grads.emplace_back(real, real.grad());
  };
  auto recorder = std::make_shared<Recorder>(std::move(options));
  Recorded recorded;
  {
    RecordingScope scope(recorder);
    std::vector<at::Tensor> twins;
    for (size_t i = 0; i < arguments.size(); ++i)
      twins.push_back(recorder->add_argument(
          arguments[i], i < dynamic_shapes.size() ? dynamic_shapes[i] : DynamicDims()));
    const std::vector<at::Tensor> outputs = function(twins);
    check_grads_untouched(grads, *recorder);
    recorded = recorder->finish(outputs);
  }
  count(Counter::record_ns, (std::chrono::steady_clock::now() - start).count());
  return RecordedGraph(std::make_shared<const RecordedGraph::Impl>(std::move(recorded)));
}

std::map<std::string, int64_t> stats() {
  std::map<std::string, int64_t> all;
  for (const CounterRow& row : all_counters()) all.emplace(row.name, row.value);
  return all;
}

std::string built_for_torch() { return TORCH_VERSION; }

}  // namespace smelt
