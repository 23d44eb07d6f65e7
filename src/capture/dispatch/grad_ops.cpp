#include "capture/dispatch/grad_ops.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/library.h>

#include <algorithm>
#include <unordered_set>

#include "capture/dispatch/op_log.h"

namespace smelt {
namespace {

void set_grad(const at::Tensor& self, const std::optional<at::Tensor>& grad) {
  self.mutable_grad() = grad.value_or(at::Tensor());
}

std::vector<at::Tensor> backward(at::TensorList outputs, at::TensorList seeds,
                                 at::TensorList leaves, at::TensorList grads, bool keep_graph,
                                 bool create_graph) {
  for (size_t i = 0; i < leaves.size(); ++i)  // already so, except for the twins of a recording
    if (grads[i].defined() && !leaves[i].grad().is_same(grads[i]))
      leaves[i].mutable_grad() = grads[i];
  torch::autograd::backward(outputs.vec(), seeds.vec(), keep_graph, create_graph);
  std::vector<at::Tensor> after;
  after.reserve(leaves.size());
  for (const at::Tensor& leaf : leaves) after.push_back(leaf.grad());
  return after;
}

// Where it stands in a log it is checked by whoever runs the log.
void expect(const at::Scalar&, bool) {}

const OpInfo& find(const char* name) {
  return op_info(c10::Dispatcher::singleton().findSchemaOrThrow(name, ""));
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(smelt, m) {
  m.def("set_grad(Tensor self, Tensor? grad) -> ()");
  m.def(
      "backward(Tensor[] outputs, Tensor[] seeds, Tensor[] leaves, Tensor[] grads, "
      "bool keep_graph, bool create_graph) -> Tensor[]");
  m.def("expect(Scalar number, bool truth) -> ()");
  // Autograd sees what they do, not the calls.
  m.impl("set_grad", torch::dispatch(c10::DispatchKey::CompositeImplicitAutograd, set_grad));
  m.impl("backward", torch::dispatch(c10::DispatchKey::CompositeImplicitAutograd, backward));
  m.impl("expect", torch::dispatch(c10::DispatchKey::CompositeImplicitAutograd, expect));
}

const OpInfo& set_grad_op() {
  static const OpInfo* info = &find("smelt::set_grad");
  return *info;
}

const OpInfo& backward_op() {
  static const OpInfo* info = &find("smelt::backward");
  return *info;
}

const OpInfo& expect_op() {
  static const OpInfo* info = &find("smelt::expect");
  return *info;
}

BackwardReach reach_of(const std::vector<at::Tensor>& outputs) {
  using torch::autograd::Node;
  BackwardReach reach;
  std::unordered_set<Node*> seen;
  const auto visit = [&](const NodePtr& node) {
    if (node && seen.insert(node.get()).second) reach.nodes.push_back(node);
  };
  for (const at::Tensor& output : outputs)
    if (output.defined() && output.requires_grad())
      visit(torch::autograd::impl::gradient_edge(output).function);
  for (size_t i = 0; i < reach.nodes.size(); ++i) {
    const NodePtr node = reach.nodes[i];
    if (const auto* leaf = dynamic_cast<torch::autograd::AccumulateGrad*>(node.get()))
      reach.leaves.push_back(leaf->variable);
    for (const torch::autograd::Edge& edge : node->next_edges()) visit(edge.function);
  }
  return reach;
}

// -- in a log

bool OpLog::set_grad(const at::Tensor& self, const at::Tensor& grad) {
  LogItem item;
  item.op = &set_grad_op();
  const LogFacts& facts = log_facts(*item.op);
  if (!take_argument(item, facts, 0, self) || !take_argument(item, facts, 1, grad)) return false;
  item.ambient = ambient();
  items_.push_back(std::move(item));
  return true;
}

std::optional<LogItem> OpLog::begin_backward(const std::vector<at::Tensor>& outputs,
                                             const std::vector<at::Tensor>& seeds, bool keep_graph,
                                             bool create_graph) {
  BackwardReach reach = reach_of(outputs);
  LogItem item;
  item.op = &backward_op();
  const LogFacts& facts = log_facts(*item.op);
  std::vector<at::Tensor> grads;
  for (const at::Tensor& leaf : reach.leaves) grads.push_back(leaf.grad());
  const c10::IValue arguments[] = {outputs, seeds, reach.leaves, grads, keep_graph, create_graph};
  for (size_t i = 0; i < std::size(arguments); ++i)
    if (!take_argument(item, facts, i, arguments[i])) return std::nullopt;
  item.ambient = ambient();
  if (!keep_graph && !create_graph)
    consumed_.insert(consumed_.end(), reach.nodes.begin(), reach.nodes.end());
  return item;
}

void OpLog::end_backward(LogItem item) {
  for (LogValue leaf : item.slots[2].values) {
    const at::Tensor grad = tensor(leaf).grad();
    LogValue value = grad.defined() ? find(grad) : -1;
    if (value >= 0)
      item.written.push_back(value);  // the gradient that was there before has been added to
    else if (grad.defined())
      value = add_value(grad, LoggedTensor::Kind::result);
    item.results.push_back(value);
  }
  read_written(item);
  items_.push_back(std::move(item));
}

bool OpLog::is_consumed(LogValue value) const {
  const at::Tensor real = tensor(value);
  if (!real.defined() || !real.grad_fn()) return false;
  return std::find(consumed_.begin(), consumed_.end(), real.grad_fn()) != consumed_.end();
}

void OpLog::expect(ScalarId number, const c10::Scalar& seen, bool truth) {
  LogItem item;
  item.op = &expect_op();
  item.arguments = {seen, truth};
  item.scalars = {LogScalar{.argument = 0, .element = -1, .is_tensor = false, .id = number}};
  item.ambient = ambient();
  items_.push_back(std::move(item));
}

}  // namespace smelt
