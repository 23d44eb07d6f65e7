// For tests with an embedded Python: a world without tensors.
#pragma once

#include <Python.h>

#include <memory>
#include <span>

#include "capture/bytecode/cpython/object.h"
#include "capture/bytecode/nodes/tensors.h"

namespace smelt::bytecode {

class NoTensors final : public Tensors {
 public:
  bool is_tensor(PyObject*) const override { return false; }
  std::optional<LogTrouble> refuse(PyObject*) const override { return std::nullopt; }
  std::optional<LogTrouble> refuse_state() const override { return std::nullopt; }
  bool is_wrapped(PyObject*) const override { return false; }
  bool is_under_transform() const override { return false; }
  bool passes_on_this_thread(PyObject*) const override { return true; }
  int rank_of(PyObject*) const override { return 0; }
  int64_t size_of(PyObject*, int) const override { return 0; }
  std::unique_ptr<TensorGuard> guard(PyObject*, std::span<const int>) const override {
    return nullptr;
  }
  std::unique_ptr<TensorLog> start_log() const override { return nullptr; }
  bool backward_runs_python(PyObject*) const override { return false; }
  std::vector<Object> backward_leaves(PyObject*, PyObject*) const override { return {}; }
  std::optional<std::vector<PassHooks>> pass_hooks(PyObject*) const override {
    return std::nullopt;
  }
  Ambient ambient() const override { return {}; }
  std::string difference(const Ambient&, const Ambient&) const override { return ""; }
};

// Python lives from the first call to the end of the process.
inline void start_python_without_tensors() {
  if (!Py_IsInitialized()) Py_InitializeEx(0);
  set_tensors(std::make_unique<NoTensors>());
}

// The value of an expression.
inline Object evaluate(const char* text) {
  const Object globals = Object::steal(PyDict_New());
  PyDict_SetItemString(globals.get(), "__builtins__", PyEval_GetBuiltins());
  Object value = Object::steal(PyRun_String(text, Py_eval_input, globals.get(), globals.get()));
  if (!value) PyErr_Print();
  return value;
}

}  // namespace smelt::bytecode
