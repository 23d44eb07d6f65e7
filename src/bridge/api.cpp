// The public C++ interface (include/smelt/smelt.h).
#include <torch/csrc/autograd/variable.h>
#include <torch/version.h>

#include <chrono>

#include "base/error.h"
#include "bridge/recorded_graph.h"
#include "capture/log/grad_ops.h"
#include "diagnostics/counters.h"
#include "graph/effects.h"

namespace smelt {

namespace impl = torch::autograd::impl;

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

// The leaves a function in C++ reaches by itself. It holds them by handle, so nothing can stand
// behind them as a twin stands behind an object in Python. For autograd both become one while the
// function runs: the real tensor is found at the accumulation node of its twin, so that grad() and
// backward() go there. What the function would see in t.grad() can't be arranged; a change of it by
// hand is noticed.
class OutsideLeaves {
 public:
  void add(const at::Tensor& real, const at::Tensor& twin) {
    if (!real.is_leaf() || !real.requires_grad()) return;
    leaves_.push_back(
        {real, real.grad(), impl::try_get_grad_accumulator(real), impl::grad_accumulator(twin)});
    impl::set_grad_accumulator(real, WeakNodePtr(leaves_.back().joined));
  }
  void check_grads_untouched(Recorder& recorder) const {
    for (const Leaf& leaf : leaves_)
      if (!leaf.real.grad().is_same(leaf.grad))
        recorder.refuse(
            "the function sets .grad() of a tensor from outside; use backward() or "
            "autograd::grad() and change gradients after the run");
  }
  ~OutsideLeaves() {
    for (const Leaf& leaf : leaves_) impl::set_grad_accumulator(leaf.real, WeakNodePtr(leaf.own));
  }

 private:
  using WeakNodePtr = decltype(torch::autograd::AutogradMeta::grad_accumulator_);

  struct Leaf {
    at::Tensor real;
    at::Tensor grad;
    NodePtr own;  // its accumulation node before, if it had one
    NodePtr joined;
  };
  std::vector<Leaf> leaves_;
};

}  // namespace

RecordedGraph record(const Function& function, const std::vector<at::Tensor>& arguments,
                     const DynamicShapes& dynamic_shapes) {
  return record_as(function, arguments, dynamic_shapes, {});
}

namespace {

template <class AddArgument>
Recorded record_with(const Function& function, const std::vector<at::Tensor>& arguments,
                     RecorderOptions options, const AddArgument& add_argument) {
  const auto start = std::chrono::steady_clock::now();
  OutsideLeaves leaves;
  options.on_lift = [&](const at::Tensor& real, const at::Tensor& twin) { leaves.add(real, twin); };
  auto recorder = std::make_shared<Recorder>(std::move(options));
  Recorded recorded;
  {
    RecordingScope scope(recorder);
    std::vector<at::Tensor> twins;
    for (size_t i = 0; i < arguments.size(); ++i) twins.push_back(add_argument(*recorder, i));
    const std::vector<at::Tensor> outputs = function(twins);
    leaves.check_grads_untouched(*recorder);
    recorded = recorder->finish(outputs);
  }
  count(Counter::record_ns, (std::chrono::steady_clock::now() - start).count());
  return recorded;
}

}  // namespace

RecordedGraph record_as(const Function& function, const std::vector<at::Tensor>& arguments,
                        const DynamicShapes& dynamic_shapes, const CompileOptions& compile) {
  const auto add_argument = [&](Recorder& recorder, size_t i) {
    return recorder.add_argument(arguments[i],
                                 i < dynamic_shapes.size() ? dynamic_shapes[i] : DynamicDims());
  };
  RecorderOptions options;
  options.only_calls = compile.schedule.backends.empty();
  return RecordedGraph(std::make_shared<const RecordedGraph::Impl>(
      record_with(function, arguments, std::move(options), add_argument), compile));
}

Recorded record_sized(const Function& function, const std::vector<at::Tensor>& arguments,
                      const VaryingSizes& sizes) {
  RecorderOptions options;
  options.symbols = &sizes.symbols;
  const auto add_argument = [&](Recorder& recorder, size_t i) {
    return recorder.add_sized_argument(arguments[i],
                                       i < sizes.inputs.size() ? sizes.inputs[i] : SymbolicDims());
  };
  return record_with(function, arguments, std::move(options), add_argument);
}

std::map<std::string, int64_t> stats() {
  std::map<std::string, int64_t> all;
  for (const CounterRow& row : all_counters()) all.emplace(row.name, row.value);
  return all;
}

std::string built_for_torch() { return TORCH_VERSION; }

}  // namespace smelt
