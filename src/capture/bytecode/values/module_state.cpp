// nn.Module.__getattr__ looks into three dicts, in Python. That is a large part of the instructions
// of most models' first call, so what it reads is written down at once where it is plain.
#include "capture/bytecode/values/module_state.h"

#include <string_view>

namespace smelt::bytecode {
namespace {

PyObject* intern(const char* text) { return PyUnicode_InternFromString(text); }

bool has_strings(PyObject* tuple, std::initializer_list<std::string_view> wanted) {
  auto next = wanted.begin();
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple) && next != wanted.end(); ++i) {
    PyObject* one = PyTuple_GET_ITEM(tuple, i);
    if (PyUnicode_Check(one) && text_of(one) == *next) ++next;
  }
  return next == wanted.end();
}

// The code of the __getattr__ that is known to do what is done here in its place; nullptr: it does
// something else in this version of PyTorch.
PyCodeObject* find_getter() {
  PyCodeObject* getter = code_of_module("__getattr__");
  if (getter != nullptr && PyTuple_GET_SIZE(getter->co_names) == 4 &&
      has_strings(getter->co_names, {"__dict__", "AttributeError", "type", "__name__"}) &&
      has_strings(getter->co_consts, {"_parameters", "_buffers", "_modules"}))
    return reinterpret_cast<PyCodeObject*>(Py_NewRef(reinterpret_cast<PyObject*>(getter)));
  return nullptr;
}

}  // namespace

PyCodeObject* code_of_module(const char* method) {
  const Object module = Object::steal(PyImport_ImportModule("torch.nn.modules.module"));
  const Object type =
      Object::steal(module ? PyObject_GetAttrString(module.get(), "Module") : nullptr);
  PyErr_Clear();
  if (!type) return nullptr;
  const Object function = Object::steal(PyObject_GetAttrString(type.get(), method));
  PyErr_Clear();
  if (!function || !PyFunction_Check(function.get())) return nullptr;
  auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function.get()));
  return code->co_flags & CO_OPTIMIZED ? code : nullptr;
}

bool is_plain_dict(PyObject* object) {
  return object != nullptr && (PyDict_CheckExact(object) || PyODict_CheckExact(object));
}

Object plain_dict_of(PyObject* object) {
  Object dict = Object::steal(PyObject_GenericGetDict(object, nullptr));
  if (!dict) PyErr_Clear();
  return dict && PyDict_CheckExact(dict.get()) ? dict : Object();
}

bool get_module_state(Trace& trace, Value module, PyObject* name, Value getter, Result* result) {
  static PyObject* const places[] = {intern("_parameters"), intern("_buffers"), intern("_modules")};
  static PyCodeObject* const known = find_getter();
  if (PyFunction_GET_CODE(getter.object) != reinterpret_cast<PyObject*>(known) ||
      trace.is_born(module.object) || !PyUnicode_CheckExact(name))
    return false;
  const Object dict = plain_dict_of(module.object);
  if (!dict) return false;
  PyObject* found = nullptr;
  for (PyObject* place : places) {
    PyObject* stored = PyDict_GetItemWithError(dict.get(), place);
    if (!is_plain_dict(stored)) return false;
    found = PyDict_GetItemWithError(stored, name);
    if (found != nullptr) break;
  }
  if (found == nullptr) return false;  // raises
  trace.guard_function(getter);
  const Value own{dict.get(), trace.read(NodeKind::instance_dict, module, nullptr, 0, dict.get())};
  for (PyObject* place : places) {
    PyObject* object = PyDict_GetItemWithError(dict.get(), place);
    const Value stored{object, trace.read_dict(own, place, object)};
    if (PyDict_GetItemWithError(object, name) == nullptr) {
      trace.read_absent(stored, name);
      continue;
    }
    *result = {Py_NewRef(found), trace.read_dict(stored, name, found)};
    break;
  }
  return true;
}

}  // namespace smelt::bytecode
