// The hooks on tensors that a backward pass calls.
#pragma once

#include <Python.h>

#include <optional>
#include <unordered_map>
#include <vector>

#include "capture/bytecode/tensors.h"
#include "capture/dispatch/op_log.h"

namespace smelt {

bool backward_runs_python(PyObject* outputs);
// As Tensors::pass_hooks.
std::optional<std::vector<bytecode::Tensors::PassHooks>> pass_hooks(PyObject* outputs);

// Which hook a pass calls: those of a node in their order.
class CalledHooks {
 public:
  struct Called {
    LogValue tensor;  // whose hook it is
    int argument;     // the place of the gradient among the function's arguments
  };
  // Asked in each call of one. Nothing if it is not known to the log.
  std::optional<Called> next(const OpLog& log, PyObject* function);

 private:
  std::unordered_map<const torch::autograd::Node*, size_t> calls_;
};

}  // namespace smelt
