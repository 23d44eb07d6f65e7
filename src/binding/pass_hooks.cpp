#include "binding/pass_hooks.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/python_hook.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <string_view>
#include <typeinfo>

#include "binding/python_call.h"
#include "capture/dispatch/grad_ops.h"

namespace smelt {

using bytecode::Object;
using bytecode::Tensors;
namespace {

using torch::autograd::FunctionPreHook;
using torch::autograd::PyFunctionTensorPreHook;

// By their names: libtorch_python does not export the types.
template <class T>
bool is_named(const T& object, std::string_view name) {
  return std::string_view(typeid(object).name()).find(name) != std::string_view::npos;
}

bool is_python_node(const torch::autograd::Node& node) { return is_named(node, "6PyNodeE"); }

bool has_other_code(torch::autograd::Node& node) {
  return is_python_node(node) || !node.pre_hooks().empty() || !node.post_hooks().empty() ||
         !node.retains_grad_hooks().empty() || node.tensor_post_acc_grad_hooks() != nullptr;
}

const PyFunctionTensorPreHook* as_python(const FunctionPreHook& hook) {
  return is_named(hook, "PyFunctionTensorPreHookE")
             ? static_cast<const PyFunctionTensorPreHook*>(&hook)
             : nullptr;
}

BackwardReach reach_of(PyObject* outputs) {
  std::vector<at::Tensor> tensors;
  collect_tensors(outputs, tensors);
  return smelt::reach_of(tensors);
}

PyObject* nth_value(PyObject* dict, size_t index) {
  PyObject *key, *value;
  Py_ssize_t at = 0;
  while (PyDict_Next(dict, &at, &key, &value))
    if (index-- == 0) return value;
  return nullptr;
}

}  // namespace

bool backward_runs_python(PyObject* outputs) {
  const BackwardReach reach = reach_of(outputs);
  return std::any_of(reach.nodes.begin(), reach.nodes.end(), [](const NodePtr& node) {
    return has_other_code(*node) || !node->tensor_pre_hooks().empty();
  });
}

std::optional<std::vector<Tensors::PassHooks>> pass_hooks(PyObject* outputs) {
  std::vector<Tensors::PassHooks> found;
  for (const NodePtr& node : reach_of(outputs).nodes) {
    if (has_other_code(*node)) return std::nullopt;
    const auto* leaf = dynamic_cast<torch::autograd::AccumulateGrad*>(node.get());
    for (const auto& hook : node->tensor_pre_hooks()) {
      const PyFunctionTensorPreHook* python = as_python(*hook);
      if (python == nullptr || !PyDict_Check(python->dict)) return std::nullopt;
      found.push_back({leaf ? Object::steal(THPVariable_Wrap(leaf->variable)) : Object(),
                       Object::share(python->dict)});
    }
  }
  return found;
}

std::optional<CalledHooks::Called> CalledHooks::next(const OpLog& log, PyObject* function) {
  const NodePtr node = torch::autograd::get_current_node();
  if (!node) return std::nullopt;
  const auto* leaf = dynamic_cast<torch::autograd::AccumulateGrad*>(node.get());
  size_t index = calls_[node.get()]++;
  for (const auto& hook : node->tensor_pre_hooks()) {
    const PyFunctionTensorPreHook* python = as_python(*hook);
    if (python == nullptr) return std::nullopt;
    const auto count = static_cast<size_t>(PyDict_Size(python->dict));
    if (index >= count) {
      index -= count;
      continue;
    }
    PyObject* callee = nth_value(python->dict, index);
    const bool is_method = callee != nullptr && PyMethod_Check(callee);
    if ((is_method ? PyMethod_GET_FUNCTION(callee) : callee) != function) return std::nullopt;
    const LogValue tensor =
        leaf ? log.find(leaf->variable)
             : log.registered_on(node.get(), static_cast<uint32_t>(python->value_idx));
    if (tensor < 0) return std::nullopt;
    return Called{tensor, is_method ? 1 : 0};
  }
  return std::nullopt;
}

}  // namespace smelt
