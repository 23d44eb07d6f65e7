#include "binding/pass_hooks.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/python_function.h>
#include <torch/csrc/autograd/python_hook.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <string_view>
#include <typeinfo>

#include "binding/python_call.h"
#include "binding/tensors.h"
#include "bridge/autograd/time_pass.h"
#include "capture/log/grad_ops.h"

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

bool has_other_code(torch::autograd::Node& node) {
  const auto is_timer = [](const auto& hook) { return is_pass_timer(*hook); };
  return !std::ranges::all_of(node.pre_hooks(), is_timer) || !node.post_hooks().empty() ||
         node.tensor_post_acc_grad_hooks() != nullptr;
}

// Before PyTorch 2.13 a node's pyobj() is something else: what wraps it for Python, if anything
// does.
template <class PythonNode>
PyObject* context_in(const PythonNode& node) {
  if constexpr (requires { node.obj; })
    return node.obj;
  else
    return node.pyobj();
}

}  // namespace

bool is_python_node(const torch::autograd::Node& node) { return is_named(node, "6PyNodeE"); }

Object context_of(const torch::autograd::Node& node) {
  return Object::share(context_in(static_cast<const torch::autograd::PyNode&>(node)));
}

namespace {

bool is_plain_tuple(PyObject* object) {
  if (!PyTuple_Check(object)) return is_tensor_object(object);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); ++i)
    if (!is_tensor_object(PyTuple_GET_ITEM(object, i))) return false;
  return true;
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
    return is_python_node(*node) || has_other_code(*node) || !node->tensor_pre_hooks().empty();
  });
}

std::optional<std::vector<Tensors::PassHooks>> pass_hooks(PyObject* outputs) {
  std::vector<Tensors::PassHooks> found;
  for (const NodePtr& node : reach_of(outputs).nodes) {
    if (has_other_code(*node)) return std::nullopt;
    if (is_python_node(*node)) found.push_back({{}, {}, context_of(*node)});
    const auto* leaf = dynamic_cast<torch::autograd::AccumulateGrad*>(node.get());
    for (const auto& hook : node->tensor_pre_hooks()) {
      const PyFunctionTensorPreHook* python = as_python(*hook);
      if (python == nullptr || !PyDict_Check(python->dict)) return std::nullopt;
      found.push_back({leaf ? Object::steal(THPVariable_Wrap(leaf->variable)) : Object(),
                       Object::share(python->dict),
                       {}});
    }
  }
  return found;
}

namespace {

// What a function's context has depends on the version of PyTorch: a std::weak_ptr to its node, or
// a pointer of PyTorch's own; and since 2.13 gradients as one list.
template <class Context>
torch::autograd::Node* node_in(const Context& context) {
  if constexpr (requires { context.cdata.get(); })
    return context.cdata.get();
  else
    return context.cdata.lock().get();
}

template <class Context>
bool takes_gradients_as_list(const Context& context) {
  if constexpr (requires { context.boxed_grads_call; })
    return context.boxed_grads_call;
  else
    return false;
}

}  // namespace

torch::autograd::Node* node_of(PyObject* context) {
  return node_in(*reinterpret_cast<THPFunction*>(context));
}

OpLog::Called called_function(std::span<PyObject* const> arguments, PyObject* result) {
  OpLog::Called called;
  if (!is_plain_tuple(result)) return called;
  for (PyObject* argument : arguments)
    called.inputs.push_back(is_tensor_object(argument) ? THPVariable_Unpack(argument)
                                                       : at::Tensor());
  std::vector<at::Tensor> results;
  collect_tensors(result, results);
  const auto tracked = std::ranges::find_if(results, &at::Tensor::requires_grad);
  if (tracked == results.end()) return called;
  const NodePtr node = tracked->grad_fn();
  if (!node || !is_python_node(*node)) return called;
  const Object context = context_of(*node);
  const auto* function = reinterpret_cast<THPFunction*>(context.get());
  if (!function || function->dirty_tensors || function->pure_view ||
      !function->materialize_non_diff_grads || takes_gradients_as_list(*function))
    return called;
  called.materializes = function->materialize_grads;
  called.node = node;
  return called;
}

// The engine calls BackwardCFunction.apply(context, *gradients).
std::optional<CalledHooks::Called> CalledHooks::next(const OpLog& log, PyObject* function,
                                                     PyObject* const* arguments) {
  const NodePtr node = torch::autograd::get_current_node();
  if (!node) return std::nullopt;
  if (!is_python_node(*node) || context_of(*node).get() != arguments[0])
    return next_hook(log, function, arguments, *node);
  const std::optional<size_t> call = log.function_of(node.get());
  if (!call || !PyTuple_CheckExact(arguments[1])) return std::nullopt;
  Called called;
  called.hook.function = *call;
  collect_tensors(arguments[1], called.grads);
  return called;
}

std::optional<CalledHooks::Called> CalledHooks::next_hook(const OpLog& log, PyObject* function,
                                                          PyObject* const* arguments,
                                                          torch::autograd::Node& node) {
  const auto* leaf = dynamic_cast<torch::autograd::AccumulateGrad*>(&node);
  size_t index = calls_[&node]++;
  for (const auto& hook : node.tensor_pre_hooks()) {
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
             : log.registered_on(&node, static_cast<uint32_t>(python->value_idx));
    PyObject* grad = arguments[is_method ? 1 : 0];
    if (tensor < 0 || grad == nullptr || !is_tensor_object(grad)) return std::nullopt;
    Called called;
    called.hook.tensor = tensor;
    called.grads.push_back(THPVariable_Unpack(grad));
    return called;
  }
  return std::nullopt;
}

}  // namespace smelt
