// Which objects are the same in every call if they are equal.
#include "capture/bytecode/cpython/constants.h"

#include <cstring>
#include <string_view>
#include <unordered_set>

#include "capture/bytecode/cpython/known_types.h"
#include "capture/bytecode/cpython/object.h"
#include "capture/bytecode/cpython/private_api.h"

namespace smelt::bytecode {
namespace {

std::unordered_set<PyTypeObject*> make_fixed_types() {
  std::unordered_set<PyTypeObject*> types{
      &PyCFunction_Type,   &PyMethodDescr_Type,  &PyWrapperDescr_Type,
      &PyGetSetDescr_Type, &PyMemberDescr_Type,  &PyClassMethodDescr_Type,
      &PyProperty_Type,    &PyStaticMethod_Type, &PyClassMethod_Type,
      &PyCode_Type,        &PyModule_Type,       &PyFunction_Type,
      &PyCMethod_Type};
  const auto add = [&](const char* module, std::initializer_list<const char*> names) {
    Object name = Object::steal(PyUnicode_FromString(module));
    Object found = Object::steal(PyImport_GetModule(name.get()));
    for (const char* type : names) {
      if (!found) break;
      Object object = Object::steal(PyObject_GetAttrString(found.get(), type));
      if (object && PyType_Check(object.get()))
        types.insert(reinterpret_cast<PyTypeObject*>(object.get()));
    }
    PyErr_Clear();
  };
  add("torch",
      {"dtype", "device", "layout", "memory_format", "qscheme", "finfo", "iinfo", "Generator"});
  add("re", {"Pattern"});
  add("types", {"GenericAlias", "UnionType"});
  add("collections.abc", {"_CallableGenericAlias"});
  add("typing", {"_GenericAlias", "_UnionGenericAlias", "_SpecialForm", "TypeVar"});
  return types;
}

bool is_enum_member(PyObject* object) {
  PyTypeObject* meta = known_type(KnownType::enum_meta);
  PyTypeObject* type = Py_TYPE(Py_TYPE(object));  // of the class
  return type != &PyType_Type && meta != nullptr && PyType_IsSubtype(type, meta);
}

bool is_size(PyObject* object) { return is_exactly(object, KnownType::size); }

bool all_constant(PyObject* tuple) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i)
    if (!is_constant(PyTuple_GET_ITEM(tuple, i))) return false;
  return true;
}

}  // namespace

bool is_struct_sequence(PyObject* object) {
  if (!PyTuple_Check(object) || PyTuple_CheckExact(object)) return false;
  static PyObject* all = PyUnicode_InternFromString("n_fields");
  static PyObject* visible = PyUnicode_InternFromString("n_sequence_fields");
  PyObject* fields = _PyType_Lookup(Py_TYPE(object), all);
  PyObject* elements = _PyType_Lookup(Py_TYPE(object), visible);
  return fields && elements && PyLong_CheckExact(fields) && PyLong_CheckExact(elements) &&
         PyLong_AsLong(fields) == PyLong_AsLong(elements) &&
         PyLong_AsLong(elements) == PyTuple_GET_SIZE(object);
}

bool is_device(PyObject* object) { return is_exactly(object, KnownType::device); }

// numpy's own types are in C, and no class that Python code makes is one of them.
bool is_numpy_number(const PyTypeObject* type) {
  static const std::unordered_set<std::string_view> numbers{
      "numpy.float16", "numpy.float32", "numpy.float64",   "numpy.int8",      "numpy.int16",
      "numpy.int32",   "numpy.int64",   "numpy.uint8",     "numpy.uint16",    "numpy.uint32",
      "numpy.uint64",  "numpy.bool",    "numpy.bool_",     "numpy.longlong",  "numpy.ulonglong",
      "numpy.intc",    "numpy.uintc",   "numpy.complex64", "numpy.complex128"};
  return !(type->tp_flags & Py_TPFLAGS_HEAPTYPE) && std::strncmp(type->tp_name, "numpy.", 6) == 0 &&
         numbers.contains(type->tp_name);
}

bool is_known_by_identity(const PyTypeObject* type) {
  return type->tp_hash == PyBaseObject_Type.tp_hash &&
         type->tp_richcompare == PyBaseObject_Type.tp_richcompare;
}

bool is_shared(PyObject* object) {
  return is_atom(object) || (PyTuple_CheckExact(object) && PyTuple_GET_SIZE(object) == 0) ||
         is_numpy_number(Py_TYPE(object));
}

bool is_constant_set(PyObject* set) {
  Py_ssize_t at = 0;
  PyObject* item;
  Py_hash_t hash;
  while (_PySet_NextEntry(set, &at, &item, &hash))
    if (!is_constant(item)) return false;
  return true;
}

bool is_singleton(PyObject* object) {
  return object == Py_None || PyBool_Check(object) || object == Py_Ellipsis ||
         object == Py_NotImplemented;
}

bool is_compound(PyObject* object) { return !is_atom(object) && !is_fixed(object); }

bool is_atom(PyObject* object) {
  return is_singleton(object) || PyLong_CheckExact(object) || PyFloat_CheckExact(object) ||
         PyUnicode_CheckExact(object) || PyBytes_CheckExact(object) || PyComplex_CheckExact(object);
}

bool is_fixed(PyObject* object) {
  static const std::unordered_set<PyTypeObject*> types = make_fixed_types();
  PyTypeObject* type = Py_TYPE(object);
  // Most of what is asked about.
  if (type == &PyDict_Type || type == &PyTuple_Type || type == &PyList_Type ||
      type == &PyMethod_Type || type == &PyCell_Type)
    return false;
  if (type == &PyFunction_Type || type == &PyModule_Type || type == &PyType_Type) return true;
  if (type == &PyCFunction_Type || type == &PyCMethod_Type) {  // there are no others
    // A builtin bound to an object (list.append) is as that object is.
    PyObject* self = PyCFunction_GET_SELF(object);
    return self == nullptr || PyModule_Check(self) || PyType_Check(self) ||
           PyCapsule_CheckExact(self) ||
           std::string_view(Py_TYPE(self)->tp_name).find("pybind11_detail_function_record") !=
               std::string_view::npos;
  }
  return types.contains(type) || PyType_Check(object) || PyModule_Check(object) ||
         is_enum_member(object);
}

bool is_constant(PyObject* object) {
  if (is_atom(object) || is_fixed(object)) return true;
  if (PyTuple_CheckExact(object) || is_size(object)) return all_constant(object);
  if (PyFrozenSet_CheckExact(object)) return is_constant_set(object);
  if (PySlice_Check(object)) {
    const auto* slice = reinterpret_cast<PySliceObject*>(object);
    return is_constant(slice->start) && is_constant(slice->stop) && is_constant(slice->step);
  }
  return PyRange_Check(object) || is_numpy_number(Py_TYPE(object));
}

bool is_plain_instance(PyObject* object) {
  // Types in C may be on the heap too (array.array); those made by a class statement share this.
  static const destructor python_dealloc = [] {
    const SavedError error;  // an attribute that is not there, say
    Object made = Object::steal(
        PyObject_CallFunction(reinterpret_cast<PyObject*>(&PyType_Type), "s(){}", "plain"));
    return reinterpret_cast<PyTypeObject*>(made.get())->tp_dealloc;
  }();
  for (const PyTypeObject* type = Py_TYPE(object); type != &PyBaseObject_Type; type = type->tp_base)
    if (type == nullptr || type->tp_dealloc != python_dealloc || type->tp_methods != nullptr)
      return false;
  return true;
}

bool is_cached_function(PyObject* object) {
  static PyTypeObject* wrapper = [] {
    Object module = Object::steal(PyImport_ImportModule("functools"));
    return reinterpret_cast<PyTypeObject*>(
        PyObject_GetAttrString(module.get(), "_lru_cache_wrapper"));
  }();
  return Py_TYPE(object) == wrapper;
}

}  // namespace smelt::bytecode
