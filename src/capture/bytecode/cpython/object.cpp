#include "capture/bytecode/cpython/object.h"

namespace smelt::bytecode {
namespace {

constexpr size_t kLongest = 60;

std::string shortened(std::string text) {
  if (text.size() > kLongest) text = text.substr(0, kLongest - 3) + "...";
  return text;
}

// repr() of these runs nothing but C code.
bool has_harmless_repr(PyObject* object) {
  if (PyTuple_CheckExact(object)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); ++i)
      if (PyTuple_CheckExact(PyTuple_GET_ITEM(object, i)) ||
          !has_harmless_repr(PyTuple_GET_ITEM(object, i)))
        return false;
    return true;
  }
  return object == Py_None || PyBool_Check(object) || PyLong_CheckExact(object) ||
         PyFloat_CheckExact(object) || PyComplex_CheckExact(object) ||
         PyUnicode_CheckExact(object) || PyBytes_CheckExact(object) || object == Py_Ellipsis;
}

}  // namespace

std::string text_of(PyObject* str) {
  if (str == nullptr || !PyUnicode_Check(str)) return "?";
  Py_ssize_t size = 0;
  const SavedError error;
  const char* text = PyUnicode_AsUTF8AndSize(str, &size);
  if (text == nullptr) {  // lone surrogates
    PyErr_Clear();
    return "?";
  }
  return {text, static_cast<size_t>(size)};
}

std::string show(PyObject* object) {
  if (object == nullptr) return "nothing";
  const SavedError error;
  if (has_harmless_repr(object)) {
    const Object text = Object::steal(PyObject_Repr(object));
    if (text) return shortened(text_of(text.get()));
    PyErr_Clear();  // an int of too many digits
  } else if (PyType_Check(object)) {
    return std::string("class ") + reinterpret_cast<PyTypeObject*>(object)->tp_name;
  } else if (PyFunction_Check(object)) {
    return "function " + text_of(reinterpret_cast<PyFunctionObject*>(object)->func_qualname);
  } else if (PyModule_Check(object)) {
    const char* name = PyModule_GetName(object);
    if (name != nullptr) return std::string("module ") + name;
    PyErr_Clear();
  }
  return std::string(Py_TYPE(object)->tp_name) + " object";
}

Object take_error() {
#if PY_VERSION_HEX >= 0x030C0000
  return Object::steal(PyErr_GetRaisedException());
#else
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  if (type == nullptr) return {};
  PyErr_NormalizeException(&type, &value, &traceback);
  PyException_SetTraceback(value, traceback != nullptr ? traceback : Py_None);
  Py_XDECREF(traceback);
  Py_DECREF(type);
  return Object::steal(value);
#endif
}

void restore_error(Object exception) {
  if (!exception) return;
#if PY_VERSION_HEX >= 0x030C0000
  PyErr_SetRaisedException(exception.release());
#else
  PyObject* value = exception.release();
  PyErr_Restore(Py_NewRef(reinterpret_cast<PyObject*>(Py_TYPE(value))), value,
                PyException_GetTraceback(value));
#endif
}

}  // namespace smelt::bytecode
