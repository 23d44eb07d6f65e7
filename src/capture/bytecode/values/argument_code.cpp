// Objects of the user's among the arguments of PyTorch's C functions. The argument parser asks them
// for an index, a number or a __torch_function__, which is Python code that reads what it likes.
#include "capture/bytecode/cpython/libraries.h"
#include "capture/bytecode/values/operations.h"

namespace smelt::bytecode {
namespace {

constexpr int kDepth = 8;  // containers in each other

// What the parser asks for is nothing, or a function in Python, which will be seen.
bool has_followable_code(Trace& trace, Value object) {
  static const auto intern = [](const char* text) { return PyUnicode_InternFromString(text); };
  static PyObject* const numbers[] = {
      intern("__index__"), intern("__int__"), intern("__float__"),   intern("__complex__"),
      intern("__bool__"),  intern("__len__"), intern("__getitem__"), intern("__iter__")};
  static PyObject* const others[] = {intern("__torch_function__"), intern("__array__"),
                                     intern("__array_interface__"),
                                     intern("__cuda_array_interface__"), intern("__dlpack__")};
  PyTypeObject* type = Py_TYPE(object.object);
  if (!is_plain_instance(object.object) || type->tp_getattro != PyObject_GenericGetAttr)
    return false;
  trace.guard_type(object);
  for (PyObject* name : numbers) {
    PyObject* found = _PyType_Lookup(type, name);
    if (found != nullptr && !PyFunction_Check(found)) return false;
    trace.read_type(type, name, found);
  }
  for (PyObject* name : others) {
    if (_PyType_Lookup(type, name) != nullptr)
      return false;  // not asked: it may be code that tells
    const Result found = get_attribute(&trace, object, name);
    Py_XDECREF(found.object);
    if (found.object != nullptr) return false;
    PyErr_Clear();
  }
  return trace.active();
}

ArgumentCode code_in(Trace& trace, Value value, int depth) {
  PyObject* object = value.object;
  if (object == nullptr || is_constant(object) || tensors().is_tensor(object))
    return ArgumentCode::none;
  ArgumentCode worst = ArgumentCode::none;
  const auto look_at = [&](PyObject* part) {
    worst = std::max(worst, code_in(trace, trace.value(part), depth + 1));
  };
  if (depth < kDepth && (PyList_Check(object) || PyTuple_Check(object))) {
    for (Py_ssize_t i = 0; i < Py_SIZE(object); ++i)
      look_at(PyList_Check(object) ? PyList_GET_ITEM(object, i) : PyTuple_GET_ITEM(object, i));
    return worst;
  }
  if (depth < kDepth && PyDict_CheckExact(object)) {
    PyObject *key, *item;
    Py_ssize_t at = 0;
    while (PyDict_Next(object, &at, &key, &item)) look_at(item);
    return worst;
  }
  if (PySlice_Check(object)) {
    const auto* slice = reinterpret_cast<PySliceObject*>(object);
    for (PyObject* part : {slice->start, slice->stop, slice->step}) look_at(part);
    return worst;
  }
  // Other objects of C's have nothing that PyTorch calls; whether they can be guarded is another
  // question.
  if (!PyType_HasFeature(Py_TYPE(object), Py_TPFLAGS_HEAPTYPE)) return ArgumentCode::none;
  return has_followable_code(trace, value) ? ArgumentCode::followed : ArgumentCode::hidden;
}

}  // namespace

ArgumentCode code_among(Trace& trace, std::span<const Value> arguments) {
  ArgumentCode worst = ArgumentCode::none;
  for (const Value& argument : arguments) {
    const Value known = trace.value(argument.object, argument.ref);
    const ArgumentCode code = code_in(trace, known, 0);
    if (code == ArgumentCode::hidden)
      trace.stop(BreakReason::c_callback,
                 std::string("a method of ") + Py_TYPE(argument.object)->tp_name);
    worst = std::max(worst, code);
  }
  return worst;
}

bool has_own_method(Trace& trace, PyObject* tensor, PyObject* name) {
  PyTypeObject* type = Py_TYPE(tensor);
  PyObject* found = _PyType_Lookup(type, name);
  trace.read_type(type, name, found);
  if (found == nullptr || !PyFunction_Check(found)) return true;
  return is_of_package(PyFunction_GET_GLOBALS(found), "torch");
}

}  // namespace smelt::bytecode
