#include "capture/log/grad_ops.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/library.h>

#include <algorithm>
#include <string_view>
#include <typeinfo>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "aten/convert.h"
#include "capture/log/op_log.h"
#include "log/own_ops.h"

namespace smelt {
namespace {

void set_grad(const at::Tensor& self, const std::optional<at::Tensor>& grad) {
  self.mutable_grad() = grad.value_or(at::Tensor());
}

std::vector<at::Tensor> backward(at::TensorList outputs, at::TensorList seeds,
                                 at::TensorList leaves, at::TensorList grads, bool keep_graph,
                                 bool create_graph, bool only, at::TensorList) {
  for (size_t i = 0; i < leaves.size(); ++i)  // already so, except for the twins of a recording
    if (grads[i].defined() && !leaves[i].grad().is_same(grads[i]))
      leaves[i].mutable_grad() = grads[i];
  torch::autograd::backward(outputs.vec(), seeds.vec(), keep_graph, create_graph,
                            only ? leaves.vec() : std::vector<at::Tensor>());
  std::vector<at::Tensor> after;
  after.reserve(leaves.size());
  for (const at::Tensor& leaf : leaves) after.push_back(leaf.grad());
  return after;
}

std::vector<at::Tensor> grad(at::TensorList outputs, at::TensorList seeds, at::TensorList inputs,
                             bool keep_graph, bool create_graph, bool allow_unused,
                             at::TensorList) {
  return torch::autograd::grad(outputs.vec(), inputs.vec(), seeds.vec(), keep_graph, create_graph,
                               allow_unused);
}

void require_grad(const at::Tensor& self, bool value) { self.set_requires_grad(value); }

void retain_grad(const at::Tensor& self) { self.retain_grad(); }

// A recording has no versions that a change of it could leave as they are: there it is detach(),
// and whoever has saved the tensor for a backward pass finds it changed.
at::Tensor data(const at::Tensor& self) {
  return at::functionalization::impl::isFunctionalTensor(self) ? self.detach()
                                                               : self.variable_data();
}

// Where it stands in a log it is checked by whoever runs the log.
void expect(const at::Scalar&, bool) {}

at::Scalar size(const at::Tensor& self, int64_t dim) { return self.size(dim); }

const OpInfo& find(const char* name) {
  return op_info(c10::Dispatcher::singleton().findSchemaOrThrow(name, ""));
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(smelt, m) {
  m.def("set_grad(Tensor self, Tensor? grad) -> ()");
  m.def(
      "backward(Tensor[] outputs, Tensor[] seeds, Tensor[] leaves, Tensor[] grads, "
      "bool keep_graph, bool create_graph, bool only, Tensor[] uses) -> Tensor[]");
  m.def(
      "grad(Tensor[] outputs, Tensor[] seeds, Tensor[] inputs, bool keep_graph, "
      "bool create_graph, bool allow_unused, Tensor[] uses) -> Tensor[]");
  m.def("require_grad(Tensor self, bool value) -> ()");
  m.def("retain_grad(Tensor self) -> ()");
  m.def("data(Tensor(a) self) -> Tensor(a)");
  m.def("expect(Scalar number, bool truth) -> ()");
  m.def("size(Tensor self, int dim) -> Scalar");
  // Autograd sees what they do, not the calls.
  m.impl("set_grad", torch::dispatch(c10::DispatchKey::CompositeImplicitAutograd, set_grad));
  m.impl("backward", torch::dispatch(c10::DispatchKey::CompositeImplicitAutograd, backward));
  m.impl("grad", torch::dispatch(c10::DispatchKey::CompositeImplicitAutograd, grad));
  m.impl("require_grad",
         torch::dispatch(c10::DispatchKey::CompositeImplicitAutograd, require_grad));
  m.impl("retain_grad", torch::dispatch(c10::DispatchKey::CompositeImplicitAutograd, retain_grad));
  m.impl("data", torch::dispatch(c10::DispatchKey::CompositeImplicitAutograd, data));
  m.impl("expect", torch::dispatch(c10::DispatchKey::CompositeImplicitAutograd, expect));
  m.impl("size", torch::dispatch(c10::DispatchKey::CompositeImplicitAutograd, size));
}

const OpInfo& set_grad_op() {
  static const OpInfo* info = &find("smelt::set_grad");
  return *info;
}

const OpInfo& backward_op() {
  static const OpInfo* info = &find("smelt::backward");
  return *info;
}

const OpInfo& grad_op() {
  static const OpInfo* info = &find("smelt::grad");
  return *info;
}

const OpInfo& require_grad_op() {
  static const OpInfo* info = &find("smelt::require_grad");
  return *info;
}

const OpInfo& retain_grad_op() {
  static const OpInfo* info = &find("smelt::retain_grad");
  return *info;
}

const OpInfo& data_op() {
  static const OpInfo* info = &find("smelt::data");
  return *info;
}

const OpInfo& size_op() {
  static const OpInfo* info = &find("smelt::size");
  return *info;
}

const OpInfo& expect_op() {
  static const OpInfo* info = &find("smelt::expect");
  return *info;
}

namespace {

using torch::autograd::Node;

// The nodes from which an edge leads to one of these, and these.
std::unordered_set<Node*> leading_to(const std::vector<NodePtr>& nodes,
                                     std::vector<Node*> targets) {
  std::unordered_map<Node*, std::vector<Node*>> before;
  for (const NodePtr& node : nodes)
    for (const torch::autograd::Edge& edge : node->next_edges())
      if (edge.function) before[edge.function.get()].push_back(node.get());
  std::unordered_set<Node*> found(targets.begin(), targets.end());
  while (!targets.empty()) {
    Node* const target = targets.back();
    targets.pop_back();
    for (Node* node : before[target])
      if (found.insert(node).second) targets.push_back(node);
  }
  return found;
}

void limit_to(BackwardReach& reach, const std::vector<at::Tensor>& only) {
  const auto is_wanted = [&](const at::Tensor& leaf) {
    return std::any_of(only.begin(), only.end(),
                       [&](const at::Tensor& input) { return input.is_same(leaf); });
  };
  std::erase_if(reach.leaves, [&](const at::Tensor& leaf) { return !is_wanted(leaf); });
  std::vector<Node*> targets;
  for (const at::Tensor& leaf : reach.leaves)
    targets.push_back(torch::autograd::impl::gradient_edge(leaf).function.get());
  const std::unordered_set<Node*> needed = leading_to(reach.nodes, std::move(targets));
  std::erase_if(reach.nodes, [&](const NodePtr& node) { return !needed.contains(node.get()); });
}

// Those that a torch.autograd.grad runs: the ones from which an edge leads on to what it asks for.
std::vector<NodePtr> run_for(std::vector<NodePtr> nodes, const std::vector<at::Tensor>& asked) {
  std::vector<Node*> targets;
  for (const at::Tensor& tensor : asked)
    if (tensor.defined() && tensor.requires_grad())
      targets.push_back(torch::autograd::impl::gradient_edge(tensor).function.get());
  const std::unordered_set<Node*> leading = leading_to(nodes, std::move(targets));
  std::erase_if(nodes, [&](const NodePtr& node) {
    return std::ranges::none_of(node->next_edges(), [&](const torch::autograd::Edge& edge) {
      return leading.contains(edge.function.get());
    });
  });
  return nodes;
}

}  // namespace

// PyTorch's nodes unpack what they have saved before they look at a gradient, and compute nothing
// of one that is not there. Nodes of others run their own code, and are not asked.
bool is_used_up(const at::Tensor& output) {
  const BackwardReach reach = reach_of({output});
  const auto is_torchs = [](const NodePtr& node) {
    return std::string_view(typeid(*node).name()).starts_with("N5torch8autograd9generated");
  };
  for (const NodePtr& node : reach.nodes) {
    if (!is_torchs(node)) continue;
    try {
      (*node)(torch::autograd::variable_list(node->num_inputs()));
    } catch (const c10::Error& error) {
      if (std::string_view(error.what()).find("a second time") != std::string_view::npos)
        return true;
    }
  }
  return false;
}

BackwardReach reach_of(const std::vector<at::Tensor>& outputs,
                       const std::vector<at::Tensor>& only) {
  BackwardReach reach;
  std::unordered_set<torch::autograd::Node*> seen;
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
  if (!only.empty()) limit_to(reach, only);
  return reach;
}

// -- in a log

bool OpLog::set_grad(const at::Tensor& self, const at::Tensor& grad) {
  OpenCall call = open(set_grad_op());
  if (!take_arguments(call, {self, grad})) return false;
  call.plain.ambient = ambient();
  close(std::move(call));
  return true;
}

std::optional<OpenCall> OpLog::begin_backward(const std::vector<at::Tensor>& outputs,
                                              const std::vector<at::Tensor>& seeds,
                                              const std::vector<at::Tensor>& only, bool keep_graph,
                                              bool create_graph) {
  if (recomputed_pieces_ > 0) {
    give_up(OpTrouble::Kind::autograd, "a backward pass behind a checkpoint");
    return std::nullopt;
  }
  BackwardReach reach = reach_of(outputs, only);
  if (!knows_retained(reach.nodes, only.empty())) return std::nullopt;
  for (at::Tensor& tensor : retained(outputs)) reach.leaves.push_back(std::move(tensor));
  OpenCall call = open(backward_op());
  std::vector<at::Tensor> grads;
  for (const at::Tensor& leaf : reach.leaves) grads.push_back(leaf.grad());
  if (!take_arguments(
          call, {outputs, seeds, reach.leaves, grads, keep_graph, create_graph, !only.empty()}))
    return std::nullopt;
  call.plain.ambient = ambient();
  hooks_.clear();
  if (!keep_graph && !create_graph) nodes_.consume(reach.nodes, plain_.calls.size());
  return call;
}

void OpLog::end_backward(OpenCall call) {
  each_tensor_of(call.plain.args[own_ops::kLeaves], [&](LogValue leaf) {
    const at::Tensor grad = tensor(leaf).grad();
    LogValue value = grad.defined() ? find(grad) : -1;
    if (value >= 0)
      call.plain.written.push_back(value);  // the gradient that was there before was added to
    else if (grad.defined())
      value = add_value(grad, LoggedValue::Kind::result);
    call.plain.results.push_back(value);
  });
  read_written(call.plain);
  take_hooks(call);
  close(std::move(call));
}

// Those that the pass has called.
void OpLog::take_hooks(OpenCall& call) {
  call.real.hooks = std::exchange(hooks_, {});
  call.plain.args.emplace_back(values_used(call.real.hooks, plain_));
}

std::optional<OpenCall> OpLog::begin_grad(const std::vector<at::Tensor>& outputs,
                                          const std::vector<at::Tensor>& seeds,
                                          const std::vector<at::Tensor>& inputs, bool keep_graph,
                                          bool create_graph, bool allow_unused) {
  if (recomputed_pieces_ > 0) {
    give_up(OpTrouble::Kind::autograd, "a backward pass behind a checkpoint");
    return std::nullopt;
  }
  OpenCall call = open(grad_op());
  if (!take_arguments(call, {outputs, seeds, inputs, keep_graph, create_graph, allow_unused}))
    return std::nullopt;
  call.plain.ambient = ambient();
  hooks_.clear();
  const std::vector<NodePtr> nodes = reach_of(outputs).nodes;
  if (!knows_retained(nodes, false)) return std::nullopt;
  if (!keep_graph && !create_graph) nodes_.consume(run_for(nodes, inputs), plain_.calls.size());
  return call;
}

bool OpLog::end_grad(OpenCall call, const std::vector<at::Tensor>& grads) {
  take_hooks(call);
  if (!keep_results(call.plain, {c10::IValue(grads)}, 0)) return false;
  close(std::move(call));
  return true;
}

bool OpLog::require_grad(const at::Tensor& tensor, bool value) {
  const LogValue id = find(tensor);
  if (id < 0 || plain_.value(id).kind != LoggedValue::Kind::result || plain_.value(id).dynamic)
    return false;
  read_state(id, tensor);
  OpenCall call = open(require_grad_op());
  if (!take_arguments(call, {tensor, value})) return false;
  call.plain.ambient = ambient();
  close(std::move(call));
  return true;
}

bool OpLog::retain_grad(const at::Tensor& tensor) {
  const LogValue id = find(tensor);
  if (id < 0 || plain_.value(id).kind != LoggedValue::Kind::result || tensor.is_leaf())
    return false;
  OpenCall call = open(retain_grad_op());
  if (!take_arguments(call, {tensor})) return false;
  call.plain.ambient = ambient();
  plain_.values[id].retains_grad = true;
  nodes_.retain(torch::autograd::impl::gradient_edge(tensor).function, id);
  close(std::move(call));
  return true;
}

std::vector<at::Tensor> OpLog::retained(const std::vector<at::Tensor>& outputs) const {
  std::vector<at::Tensor> found;
  if (!nodes_.retains_any()) return found;
  for (const LogValue value : nodes_.retained(reach_of(outputs).nodes))
    if (const at::Tensor tensor = this->tensor(value); tensor.defined()) found.push_back(tensor);
  return found;
}

// Which gradients the pass leaves with tensors on the way is known. `may`: there may be any.
bool OpLog::knows_retained(const std::vector<NodePtr>& nodes, bool may) {
  const bool is_known = std::all_of(nodes.begin(), nodes.end(), [&](const NodePtr& node) {
    return node->retains_grad_hooks().empty() || (may && nodes_.is_retained(node));
  });
  if (!is_known) give_up(OpTrouble::Kind::autograd, "retain_grad() of a tensor");
  return is_known;
}

bool OpLog::take_data(const at::Tensor& tensor, const at::Tensor& data) {
  OpenCall call = open(data_op());
  if (!take_arguments(call, {tensor})) return false;
  call.plain.ambient = ambient();
  if (!keep_results(call.plain, {c10::IValue(data)}, 0)) return false;
  plain_.values[call.plain.results[0]].apart = true;
  close(std::move(call));
  return true;
}

bool OpLog::is_consumed(LogValue value) const {
  const at::Tensor real = tensor(value);
  if (!real.defined() || !real.grad_fn()) return false;
  return nodes_.is_consumed(real.grad_fn(), plain_.calls.size());
}

void OpLog::expect(ScalarId number, const c10::Scalar& seen, bool truth) {
  if (has_effects())
    return give_up(OpTrouble::Kind::data_dependent, "a branch behind an op that may have effects");
  OpenCall call = open(expect_op());
  call.plain.args = {number_arg(seen), truth};
  call.plain.takes = {{.argument = 0, .element = -1, .is_tensor = false, .id = number}};
  call.plain.ambient = ambient();
  close(std::move(call));
}

}  // namespace smelt
