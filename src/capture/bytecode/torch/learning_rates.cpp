// The learning rate of a fused optimizer's step. It is a float of the op, which can't be a run-time
// scalar; the overload that takes a tensor reads the number out of it and computes the same.
#include <string_view>

#include "capture/bytecode/torch/torch_calls.h"
#include "capture/bytecode/values/operations.h"

namespace smelt::bytecode {
namespace {

PyObject* torch_attribute(const char* name) {
  const Object torch = Object::steal(PyImport_ImportModule("torch"));
  return torch ? PyObject_GetAttrString(torch.get(), name) : nullptr;
}

bool takes_tensor(Trace& trace, const char* name) {
  const Unfollowed unfollowed(&trace, false);
  const Object ops = Object::steal(torch_attribute("ops"));
  const Object aten = Object::steal(ops ? PyObject_GetAttrString(ops.get(), "aten") : nullptr);
  const Object op = Object::steal(aten ? PyObject_GetAttrString(aten.get(), name) : nullptr);
  const bool found = op && PyObject_HasAttrString(op.get(), "tensor_lr") != 0;
  PyErr_Clear();
  return found;
}

}  // namespace

size_t place_of_rate(Trace& trace, PyObject* function, std::span<const Value> arguments,
                     PyObject* keywords) {
  if (keywords == nullptr || !PyCFunction_Check(function)) return arguments.size();
  const char* name = reinterpret_cast<PyCFunctionObject*>(function)->m_ml->ml_name;
  if (!std::string_view(name).starts_with("_fused_")) return arguments.size();
  const auto count = static_cast<size_t>(PyTuple_GET_SIZE(keywords));
  for (size_t i = 0; i < count; ++i) {
    PyObject* keyword = PyTuple_GET_ITEM(keywords, static_cast<Py_ssize_t>(i));
    if (PyUnicode_CompareWithASCIIString(keyword, "lr") != 0) continue;
    const size_t place = arguments.size() - count + i;
    if (trace.is_runtime_scalar(arguments[place]) && takes_tensor(trace, name)) return place;
  }
  return arguments.size();
}

// On the CPU whatever the default device is, and as precise as the number.
Result rate_as_tensor(Trace& trace, Value rate) {
  static PyObject* make = torch_attribute("scalar_tensor");
  static PyObject* dtype = torch_attribute("float64");
  static PyObject* device = PyUnicode_InternFromString("cpu");
  static PyObject* names = Py_BuildValue("(ss)", "dtype", "device");
  const Value arguments[] = {rate, {dtype, 0}, {device, 0}};
  return call(&trace, {make, 0}, arguments, names);
}

}  // namespace smelt::bytecode
