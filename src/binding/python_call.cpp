#include "binding/python_call.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>

#include "binding/tensors.h"
#include "capture/bytecode/cpython/object.h"
#include "capture/log/grad_ops.h"

namespace py = pybind11;

namespace smelt {

using bytecode::Object;
namespace {

bool is_sequence(PyObject* object) { return PyTuple_Check(object) || PyList_Check(object); }

PyObject* item_of(PyObject* sequence, Py_ssize_t i) {
  return PyTuple_Check(sequence) ? PyTuple_GET_ITEM(sequence, i) : PyList_GET_ITEM(sequence, i);
}

[[noreturn]] void throw_python_error() {
  python_error error;
  error.persist();
  throw error;
}

// An argument: a constant, a tensor, or a tuple of arguments.
struct Template {
  Object constant;
  bool is_tensor = false;
  std::vector<Template> items;

  explicit Template(PyObject* object) : is_tensor(is_tensor_object(object)) {
    if (is_tensor) return;
    std::vector<at::Tensor> tensors;
    collect_tensors(object, tensors);
    const bool has_tensor = std::any_of(tensors.begin(), tensors.end(),
                                        [](const at::Tensor& tensor) { return tensor.defined(); });
    if (!has_tensor) {
      constant = Object::share(object);
      return;
    }
    for (Py_ssize_t i = 0; i < Py_SIZE(object); ++i) items.emplace_back(item_of(object, i));
  }

  Object fill(const std::vector<at::Tensor>& tensors, size_t& next) const {
    if (constant) return constant;
    if (is_tensor) return Object::steal(THPVariable_Wrap(tensors.at(next++)));
    Object tuple = Object::steal(PyTuple_New(static_cast<Py_ssize_t>(items.size())));
    for (size_t i = 0; tuple && i < items.size(); ++i) {
      Object item = items[i].fill(tensors, next);
      if (!item) return {};
      PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), item.release());
    }
    return tuple;
  }
};

class PythonCall final : public OpaqueCall {
 public:
  PythonCall(PyObject* callee, std::span<PyObject* const> arguments, PyObject* names)
      : callee_(Object::share(callee)), names_(Object::share(names)) {
    for (PyObject* argument : arguments) arguments_.emplace_back(argument);
  }
  ~PythonCall() override {
    const py::gil_scoped_acquire gil;
    callee_ = names_ = Object();
    arguments_.clear();
  }
  PythonCall(const PythonCall&) = delete;
  PythonCall& operator=(const PythonCall&) = delete;

  std::vector<at::Tensor> run(const std::vector<at::Tensor>& tensors) const override {
    const py::gil_scoped_acquire gil;
    std::vector<Object> held;
    std::vector<PyObject*> stack(1);  // room that a bound method may use
    size_t next = 0;
    for (const Template& argument : arguments_) {
      held.push_back(argument.fill(tensors, next));
      if (!held.back()) throw_python_error();
      stack.push_back(held.back().get());
    }
    const size_t named = names_ ? static_cast<size_t>(PyTuple_GET_SIZE(names_.get())) : 0;
    const Object result = Object::steal(PyObject_Vectorcall(
        callee_.get(), stack.data() + 1,
        (arguments_.size() - named) | PY_VECTORCALL_ARGUMENTS_OFFSET, names_.get()));
    if (!result) throw_python_error();
    std::vector<at::Tensor> results;
    collect_tensors(result.get(), results);
    return results;
  }

 private:
  Object callee_, names_;
  std::vector<Template> arguments_;
};

}  // namespace

c10::intrusive_ptr<OpaqueCall> make_python_call(PyObject* callee,
                                                std::span<PyObject* const> arguments,
                                                PyObject* names) {
  return c10::make_intrusive<PythonCall>(callee, arguments, names);
}

void collect_tensors(PyObject* object, std::vector<at::Tensor>& tensors) {
  if (is_tensor_object(object)) {
    tensors.push_back(THPVariable_Unpack(object));
  } else if (object == Py_None) {
    tensors.emplace_back();
  } else if (is_sequence(object)) {
    for (Py_ssize_t i = 0; i < Py_SIZE(object); ++i) collect_tensors(item_of(object, i), tensors);
  }
}

std::vector<Object> backward_leaves(PyObject* outputs, PyObject* inputs) {
  std::vector<at::Tensor> tensors, only;
  collect_tensors(outputs, tensors);
  collect_tensors(inputs, only);
  std::vector<Object> leaves;
  for (const at::Tensor& leaf : reach_of(tensors, only).leaves)
    leaves.push_back(Object::steal(THPVariable_Wrap(leaf)));
  return leaves;
}

}  // namespace smelt
