// Calls of Python's that an op log keeps, and what a backward pass would call.
#pragma once

#include <Python.h>

#include <span>
#include <vector>

#include "capture/bytecode/cpython/object.h"
#include "capture/log/opaque_call.h"

namespace smelt {

// callee(*arguments) with keyword names for the last ones; other tensors take the place of those in
// the arguments.
c10::intrusive_ptr<OpaqueCall> make_python_call(PyObject* callee,
                                                std::span<PyObject* const> arguments,
                                                PyObject* names);
// The tensors in a tensor or a tuple or list of tensors, undefined ones for None.
void collect_tensors(PyObject* object, std::vector<at::Tensor>& tensors);
// The tensors to whose gradients a backward pass would add, of those in `inputs` if there are any.
std::vector<bytecode::Object> backward_leaves(PyObject* outputs, PyObject* inputs);

}  // namespace smelt
