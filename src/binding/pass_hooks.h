// The hooks on tensors and the custom functions that a backward pass calls.
#pragma once

#include <Python.h>

#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "capture/bytecode/nodes/tensors.h"
#include "capture/log/op_log.h"

namespace smelt {

bool backward_runs_python(PyObject* outputs);
// As Tensors::pass_hooks.
std::optional<std::vector<bytecode::Tensors::PassHooks>> pass_hooks(PyObject* outputs);

// The node of a custom function, and the context that its functions are given.
bool is_python_node(const torch::autograd::Node& node);
bytecode::Object context_of(const torch::autograd::Node& node);
// The node of a custom function by its context.
torch::autograd::Node* node_of(PyObject* context);
// What the log must know of a custom function that gave these tensors. Without a node if it can't
// be followed.
OpLog::Called called_function(std::span<PyObject* const> arguments, PyObject* result);

// Which hook a pass calls: those of a node in their order. Or which custom function.
class CalledHooks {
 public:
  struct Called {
    LogHook hook;  // whose it is
    std::vector<at::Tensor> grads;
  };
  // Asked in each call of one, with its arguments. Nothing if it is not known to the log.
  std::optional<Called> next(const OpLog& log, PyObject* function, PyObject* const* arguments);

 private:
  std::optional<Called> next_hook(const OpLog& log, PyObject* function, PyObject* const* arguments,
                                  torch::autograd::Node& node);
  std::unordered_map<const torch::autograd::Node*, size_t> calls_;
};

}  // namespace smelt
