// What smelt uses of CPython and what is not in its public headers, or no longer in 3.13.
#pragma once

#include <Python.h>

#if PY_VERSION_HEX >= 0x030D0000

extern "C" {
PyAPI_FUNC(void) _PyErr_SetKeyError(PyObject* key);
PyAPI_FUNC(int) _PySet_NextEntry(PyObject* set, Py_ssize_t* at, PyObject** key, Py_hash_t* hash);
PyAPI_FUNC(int) _PySet_Update(PyObject* set, PyObject* iterable);
PyAPI_FUNC(PyObject*) _PyList_Extend(PyListObject* list, PyObject* iterable);
PyAPI_FUNC(int) _PyDict_MergeEx(PyObject* into, PyObject* from, int override);

struct _PyDictViewObject {
  PyObject_HEAD PyDictObject* dv_dict;
};
}

#endif

namespace smelt::bytecode {

// Of object().__str__
inline PyTypeObject* method_wrapper_type() {
  static PyTypeObject* const type = [] {
    PyObject* wrapper = PyObject_GetAttrString(Py_None, "__str__");
    PyTypeObject* found = Py_TYPE(wrapper);
    Py_DECREF(wrapper);
    return found;
  }();
  return type;
}

}  // namespace smelt::bytecode
