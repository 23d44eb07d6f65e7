#include "capture/bytecode/interpret/disabled.h"

#include "capture/bytecode/cpython/object.h"

namespace smelt::bytecode {
namespace {

// A function's own dict gets the function's address, so that functools.wraps does not pass the mark
// on.
const char* const kDisabled = "_smelt_disabled";

}  // namespace

PyObject* python_function(PyObject* callable) {
  if (PyMethod_Check(callable)) callable = PyMethod_GET_FUNCTION(callable);
  return PyFunction_Check(callable) ? callable : nullptr;
}

void mark_disabled(PyObject* function) {
  PyObject* found = python_function(function);
  if (found == nullptr) return;
  const Object mark = Object::steal(PyLong_FromVoidPtr(found));
  if (!mark || PyObject_SetAttrString(found, kDisabled, mark.get()) < 0) PyErr_Clear();
}

bool is_disabled(PyObject* function) {
  PyObject* found = python_function(function);
  PyObject* dict =
      found != nullptr ? reinterpret_cast<PyFunctionObject*>(found)->func_dict : nullptr;
  if (dict == nullptr) return false;
  static PyObject* key = PyUnicode_InternFromString(kDisabled);
  PyObject* mark = PyDict_GetItemWithError(dict, key);
  if (mark != nullptr) return PyLong_AsVoidPtr(mark) == found;
  PyErr_Clear();
  return false;
}

}  // namespace smelt::bytecode
