#include "capture/bytecode/account/tracked.h"

#include <functional>

#include "capture/bytecode/cpython/private_api.h"

namespace smelt::bytecode {

int64_t length_of(PyObject* object) {
  if (PyList_Check(object) || PyTuple_Check(object)) return Py_SIZE(object);
  if (PyDict_Check(object)) return PyDict_GET_SIZE(object);
  if (PyAnySet_Check(object)) return PySet_GET_SIZE(object);
  return -1;
}

Object keys_of(PyObject* dict) {
  if (PyODict_Check(dict)) {  // whose table has another order than it shows
    const Object iterator = Object::steal(PyODict_Type.tp_iter(dict));
    return Object::steal(PySequence_Tuple(iterator.get()));
  }
  Object list = Object::steal(PyDict_Keys(dict));
  return Object::steal(PyList_AsTuple(list.get()));
}

Object elements_of(PyObject* set) {
  Object elements = Object::steal(PyTuple_New(PySet_GET_SIZE(set)));
  PyObject* element;
  Py_hash_t hash;
  Py_ssize_t at = 0;
  for (Py_ssize_t i = 0; _PySet_NextEntry(set, &at, &element, &hash); ++i)
    PyTuple_SET_ITEM(elements.get(), i, Py_NewRef(element));
  return elements;
}

bool has_finaliser(PyObject* object) {
  const PyTypeObject* type = Py_TYPE(object);
  return type->tp_finalize != nullptr && (type->tp_flags & Py_TPFLAGS_HEAPTYPE) &&
         !(type->tp_flags & Py_TPFLAGS_IMMUTABLETYPE);
}

size_t PathHash::operator()(const PathKey& key) const {
  size_t hash = std::hash<void*>()(key.key);
  hash = hash * 31 + key.parent;
  hash = hash * 31 + static_cast<size_t>(key.index);
  return hash * 31 + static_cast<size_t>(key.kind);
}

}  // namespace smelt::bytecode
