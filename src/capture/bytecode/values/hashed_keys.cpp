// Keys of dicts and sets whose classes hash and compare them by code of their own. A trace looks a
// key up more often than the program does, so where it can't put that off, the code must do nothing
// that shows.
#include <opcode.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "capture/bytecode/cpython/libraries.h"
#include "capture/bytecode/cpython/names.h"
#include "capture/bytecode/values/operations.h"

namespace smelt::bytecode {
namespace {

// What the code may call: functions that look at what they are given, and the methods of a base.
bool may_be_called(std::string_view name) {
  static constexpr std::array kQuiet{
      "hash",  "tuple",          "frozenset", "isinstance", "issubclass", "id",  "type",    "len",
      "str",   "repr",           "int",       "sorted",     "all",        "any", "getattr", "zip",
      "super", "NotImplemented", "__hash__",  "__eq__"};
  return std::ranges::find(kQuiet, name) != kQuiet.end();
}

std::string_view name_at(const PyCodeObject* code, int index) {
  Py_ssize_t size = 0;
  const char* text = PyUnicode_AsUTF8AndSize(PyTuple_GET_ITEM(code->co_names, index), &size);
  return text == nullptr ? std::string_view() : std::string_view(text, static_cast<size_t>(size));
}

// Whether the function reads attributes, compares and hashes, and does nothing else.
bool only_looks(PyObject* function) {
  if (!PyFunction_Check(function)) return false;
  auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function));
  const Object text = Object::steal(PyCode_GetCode(code));
  if (!text) {
    PyErr_Clear();
    return false;
  }
  const auto* bytes = reinterpret_cast<const uint8_t*>(PyBytes_AS_STRING(text.get()));
  bool calls = false, knows_names = true;
  for (Py_ssize_t i = 0; i + 1 < PyBytes_GET_SIZE(text.get()); i += 2) {
    const int argument = bytes[i + 1];
    switch (bytes[i]) {
      case STORE_ATTR:
      case STORE_SUBSCR:
      case STORE_GLOBAL:
      case STORE_DEREF:
      case DELETE_ATTR:
      case DELETE_SUBSCR:
      case IMPORT_NAME:
      case CALL_FUNCTION_EX:
      case EXTENDED_ARG:
      case RAISE_VARARGS: return false;
      case CALL: calls = true; break;
      case LOAD_GLOBAL:
        knows_names = knows_names && may_be_called(name_at(code, argument >> 1));
        break;
#ifdef LOAD_METHOD
      case LOAD_METHOD: knows_names = knows_names && may_be_called(name_at(code, argument)); break;
#else
      case LOAD_ATTR:
        if (argument & 1) knows_names = knows_names && may_be_called(name_at(code, argument >> 1));
        break;
#endif
      default: break;
    }
  }
  return knows_names || !calls;
}

// A method of a class in C, pybind11's too.
bool is_of_c(PyObject* method) {
  PyTypeObject* kind = Py_TYPE(method);
  return kind == &PyWrapperDescr_Type || kind == &PyMethodDescr_Type || kind == &PyCFunction_Type ||
         kind == &PyInstanceMethod_Type;
}

// Of the two methods of the key's class that are written in Python, whether one fulfils this.
bool any_method(PyObject* key, const auto& fulfils) {
  if (is_atom(key) || tensors().is_tensor(key)) return false;
  if (PyTuple_CheckExact(key)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key); ++i)
      if (any_method(PyTuple_GET_ITEM(key, i), fulfils)) return true;
    return false;
  }
  for (PyObject* name : {names().hash, names().eq}) {
    PyObject* method = _PyType_Lookup(Py_TYPE(key), name);
    if (method == nullptr || method == Py_None || is_of_c(method)) continue;
    if (PyFunction_Check(method) && is_in_module(method, "enum")) continue;
    if (fulfils(method)) return true;
  }
  return false;
}

// Whose method it is; nullptr: it is none.
PyObject* owner_of(PyObject* object) {
  if (PyMethod_Check(object)) return PyMethod_GET_SELF(object);
  PyObject* owner = PyCFunction_Check(object) ? PyCFunction_GET_SELF(object) : nullptr;
  return owner != nullptr && !PyModule_Check(owner) ? owner : nullptr;
}

void guard_owners_inside(Trace& trace, PyObject* object, int depth) {
  constexpr int kDepth = 4;
  if (is_atom(object) || tensors().is_tensor(object)) return;
  if (PyObject* owner = owner_of(object)) {
    trace.guard_same(trace.value(owner));
  } else if (depth == kDepth) {
    return;
  } else if (PyTuple_Check(object) || PyList_Check(object)) {
    for (Py_ssize_t i = 0; i < Py_SIZE(object); ++i)
      guard_owners_inside(
          trace, PyTuple_Check(object) ? PyTuple_GET_ITEM(object, i) : PyList_GET_ITEM(object, i),
          depth + 1);
  } else if (PyDict_Check(object)) {
    PyObject *key, *item;
    Py_ssize_t at = 0;
    while (PyDict_Next(object, &at, &key, &item)) guard_owners_inside(trace, item, depth + 1);
  }
}

}  // namespace

void guard_owners(Trace& trace, PyObject* object) { guard_owners_inside(trace, object, 0); }

void use_key(Trace& trace, Value key) {
  if (is_constant(key.object)) {
    trace.use(key);
  } else if (PyTuple_Check(key.object) && trace.is_born(key.object)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key.object); ++i) {
      PyObject* part = PyTuple_GET_ITEM(key.object, i);
      use_key(trace, trace.value(part, trace.read_item(key, i, part)));
    }
  } else {
    trace.guard_same(key);
    guard_owners(trace, key.object);
  }
}

bool is_hashed_by_code(PyObject* key) {
  return any_method(key, [](PyObject*) { return true; });
}

bool shows_when_hashed(PyObject* key) {
  return any_method(key, [](PyObject* method) { return !only_looks(method); });
}

bool has_key_that_shows(PyObject* dict) {
  PyObject *key, *item;
  Py_ssize_t at = 0;
  while (PyDict_Next(dict, &at, &key, &item))
    if (shows_when_hashed(key)) return true;
  return false;
}

}  // namespace smelt::bytecode
