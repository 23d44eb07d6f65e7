#include "capture/bytecode/cpython/same_value.h"

#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "capture/bytecode/cpython/constants.h"
#include "capture/bytecode/cpython/known_types.h"
#include "capture/bytecode/cpython/object.h"
#include "capture/bytecode/cpython/private_api.h"

namespace smelt::bytecode {
namespace {

bool same_bits(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}

// Of numpy's numbers.
bool same_bytes(PyObject* a, PyObject* b) {
  Py_buffer first, second;
  bool same = false;
  if (PyObject_GetBuffer(a, &first, PyBUF_SIMPLE) == 0) {
    if (PyObject_GetBuffer(b, &second, PyBUF_SIMPLE) == 0) {
      same = first.len == second.len &&
             std::memcmp(first.buf, second.buf, static_cast<size_t>(first.len)) == 0;
      PyBuffer_Release(&second);
    }
    PyBuffer_Release(&first);
  }
  PyErr_Clear();
  return same;
}

bool same_tuple(PyObject* a, PyObject* b) {
  const Py_ssize_t size = PyTuple_GET_SIZE(a);
  if (size != PyTuple_GET_SIZE(b)) return false;
  for (Py_ssize_t i = 0; i < size; ++i) {
    if (!same_value(PyTuple_GET_ITEM(a, i), PyTuple_GET_ITEM(b, i))) return false;
  }
  return true;
}

bool same_slice(PyObject* a, PyObject* b) {
  auto* first = reinterpret_cast<PySliceObject*>(a);
  auto* second = reinterpret_cast<PySliceObject*>(b);
  return same_value(first->start, second->start) && same_value(first->stop, second->stop) &&
         same_value(first->step, second->step);
}

bool same_range(PyObject* a, PyObject* b) {
  for (const char* name : {"start", "stop", "step"}) {
    const Object first = Object::steal(PyObject_GetAttrString(a, name));
    const Object second = Object::steal(PyObject_GetAttrString(b, name));
    if (!same_value(first.get(), second.get())) return false;
  }
  return true;
}

// torch.Size, whose elements are ints.
bool is_size(const PyTypeObject* type) { return type == known_type(KnownType::size); }

// Made anew whenever someone asks for one.
bool is_device(const PyTypeObject* type) { return type == known_type(KnownType::device); }

// In the order of iteration, which is not the same for all equal sets.
bool same_frozensets(PyObject* a, PyObject* b) {
  if (PySet_GET_SIZE(a) != PySet_GET_SIZE(b)) return false;
  Py_ssize_t at = 0, other_at = 0;
  PyObject *key, *other;
  Py_hash_t hash;
  while (_PySet_NextEntry(a, &at, &key, &hash) && _PySet_NextEntry(b, &other_at, &other, &hash))
    if (!same_value(key, other)) return false;
  return true;
}

// An OrderedDict has an order of its own, which is not that of the dict underneath.
bool same_ordered_keys(PyObject* dict, PyObject* keys) {
  const Object iterator = Object::steal(PyODict_Type.tp_iter(dict));
  if (!iterator) {
    PyErr_Clear();
    return false;
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keys); ++i) {
    const Object key = Object::steal(Py_TYPE(iterator.get())->tp_iternext(iterator.get()));
    if (!key || !same_value(key.get(), PyTuple_GET_ITEM(keys, i))) {
      PyErr_Clear();
      return false;
    }
  }
  return true;
}

}  // namespace

bool same_value(PyObject* a, PyObject* b) {
  if (a == b) return true;
  PyTypeObject* type = Py_TYPE(a);
  if (type != Py_TYPE(b)) return false;
  if (type == &PyFloat_Type) return same_bits(PyFloat_AS_DOUBLE(a), PyFloat_AS_DOUBLE(b));
  if (type == &PyLong_Type || type == &PyUnicode_Type || type == &PyBytes_Type) {
    return PyObject_RichCompareBool(a, b, Py_EQ) == 1;
  }
  if (type == &PyComplex_Type) {
    const Py_complex first = PyComplex_AsCComplex(a), second = PyComplex_AsCComplex(b);
    return same_bits(first.real, second.real) && same_bits(first.imag, second.imag);
  }
  if (type == &PyTuple_Type || is_size(type)) return same_tuple(a, b);
  if (type == &PyFrozenSet_Type) return same_frozensets(a, b);
  if (type == &PySlice_Type) return same_slice(a, b);
  if (type == &PyRange_Type) return same_range(a, b);
  if (is_numpy_number(type)) return same_bytes(a, b);
  return is_device(type) && PyObject_RichCompareBool(a, b, Py_EQ) == 1;
}

bool same_elements(PyObject* set, PyObject* elements) {
  if (PySet_GET_SIZE(set) != PyTuple_GET_SIZE(elements)) return false;
  Py_ssize_t at = 0, i = 0;
  PyObject* key;
  Py_hash_t hash;
  while (_PySet_NextEntry(set, &at, &key, &hash))
    if (!same_value(key, PyTuple_GET_ITEM(elements, i++))) return false;
  return true;
}

bool same_keys(PyObject* dict, PyObject* keys) {
  const Py_ssize_t size = PyDict_GET_SIZE(dict);
  if (size != PyTuple_GET_SIZE(keys)) return false;
  if (size > 1 && PyODict_Check(dict)) return same_ordered_keys(dict, keys);
  Py_ssize_t position = 0, i = 0;
  PyObject *key, *value;
  while (PyDict_Next(dict, &position, &key, &value)) {
    if (!same_value(key, PyTuple_GET_ITEM(keys, i++))) return false;
  }
  return true;
}

}  // namespace smelt::bytecode
