#include "capture/bytecode/nodes/replay.h"

#include "base/error.h"
#include "capture/bytecode/cpython/iterators.h"
#include "capture/bytecode/cpython/known_types.h"

namespace smelt::bytecode {
namespace {

Object done(int status) { return status == 0 ? Object::share(Py_None) : Object(); }

Object build_tuple(std::span<PyObject*> items) {
  Object tuple = Object::steal(PyTuple_New(std::ssize(items)));
  for (size_t i = 0; tuple && i < items.size(); ++i) {
    PyTuple_SET_ITEM(tuple.get(), i, Py_NewRef(items[i]));
  }
  return tuple;
}

Object build_size(std::span<PyObject*> items) {
  const Object tuple = build_tuple(items);
  auto* type = reinterpret_cast<PyObject*>(known_type(KnownType::size));
  return tuple ? Object::steal(PyObject_CallOneArg(type, tuple.get())) : Object();
}

Object build_list(std::span<PyObject*> items) {
  Object list = Object::steal(PyList_New(std::ssize(items)));
  for (size_t i = 0; list && i < items.size(); ++i) {
    PyList_SET_ITEM(list.get(), i, Py_NewRef(items[i]));
  }
  return list;
}

Object build_set(std::span<PyObject*> items) {
  Object set = Object::steal(PySet_New(nullptr));
  for (size_t i = 0; set && i < items.size(); ++i) {
    if (PySet_Add(set.get(), items[i]) < 0) return Object();
  }
  return set;
}

Object build_map(std::span<PyObject*> items) {
  Object dict = Object::steal(PyDict_New());
  for (size_t i = 0; dict && i + 1 < items.size(); i += 2) {
    if (PyDict_SetItem(dict.get(), items[i], items[i + 1]) < 0) return Object();
  }
  return dict;
}

Object call(const Step& step, std::span<PyObject*> inputs) {
  const size_t names = step.names ? static_cast<size_t>(PyTuple_GET_SIZE(step.names.get())) : 0;
  const size_t positional = inputs.size() - 1 - names;
  return Object::steal(PyObject_Vectorcall(inputs[0], inputs.data() + 1,
                                           positional | PY_VECTORCALL_ARGUMENTS_OFFSET,
                                           names > 0 ? step.names.get() : nullptr));
}

// The type has a Python method of that name. The trace has followed it, and has written down the
// store in the object itself that it came to.
bool has_python_method(PyTypeObject* type, PyObject* name) {
  if (!(type->tp_flags & Py_TPFLAGS_HEAPTYPE)) return false;
  PyObject* found = _PyType_Lookup(type, name);
  return found != nullptr && PyFunction_Check(found);
}

int set_attribute(PyObject* object, PyObject* name, PyObject* value) {
  static PyObject* const setattr = PyUnicode_InternFromString("__setattr__");
  static PyObject* const delattr = PyUnicode_InternFromString("__delattr__");
  PyTypeObject* type = Py_TYPE(object);
  if (type->tp_setattro == PyObject_GenericSetAttr ||
      has_python_method(type, value != nullptr ? setattr : delattr)) {
    return PyObject_GenericSetAttr(object, name, value);
  }
  return PyObject_SetAttr(object, name, value);
}

// The nearest base written in C: what super().__setitem__ ends up with.
PyTypeObject* base_in_c(PyTypeObject* type) {
  while (type->tp_base != nullptr && (type->tp_flags & Py_TPFLAGS_HEAPTYPE) &&
         !(type->tp_flags & Py_TPFLAGS_IMMUTABLETYPE)) {
    type = type->tp_base;
  }
  return type;
}

int set_item(PyObject* object, PyObject* key, PyObject* value) {
  static PyObject* const setitem = PyUnicode_InternFromString("__setitem__");
  static PyObject* const delitem = PyUnicode_InternFromString("__delitem__");
  PyTypeObject* type = Py_TYPE(object);
  if (has_python_method(type, value != nullptr ? setitem : delitem)) {
    const PyMappingMethods* methods = base_in_c(type)->tp_as_mapping;
    if (methods != nullptr && methods->mp_ass_subscript != nullptr) {
      return methods->mp_ass_subscript(object, key, value);
    }
  }
  return value != nullptr ? PyObject_SetItem(object, key, value) : PyObject_DelItem(object, key);
}

// MAKE_FUNCTION puts these into the function as they are; annotations are a tuple there, which the
// setters don't take.
Object make_function(const Step& step, std::span<PyObject*> inputs) {
  PyObject* qualname = inputs.size() > 2 ? inputs.back() : nullptr;
  Object made = Object::steal(PyFunction_NewWithQualName(inputs[0], inputs[1], qualname));
  if (!made) return made;
  auto* function = reinterpret_cast<PyFunctionObject*>(made.get());
  PyObject** const fields[] = {&function->func_defaults, &function->func_kwdefaults,
                               &function->func_annotations, &function->func_closure};
  size_t next = 2;
  for (int bit = 0; bit < 4; ++bit) {
    if (step.arg & (1 << bit)) Py_XSETREF(*fields[bit], Py_XNewRef(inputs[next++]));
  }
  return made;
}

}  // namespace

Object copy_of(PyObject* constant) {
  auto* type = reinterpret_cast<PyObject*>(Py_TYPE(constant));
  if (PyFrozenSet_CheckExact(constant)) return Object::steal(PyFrozenSet_New(constant));
  if (PySlice_Check(constant)) {
    const auto* slice = reinterpret_cast<PySliceObject*>(constant);
    return Object::steal(PySlice_New(slice->start, slice->stop, slice->step));
  }
  if (PyRange_Check(constant)) {
    const Object start = Object::steal(PyObject_GetAttrString(constant, "start"));
    const Object stop = Object::steal(PyObject_GetAttrString(constant, "stop"));
    const Object step = Object::steal(PyObject_GetAttrString(constant, "step"));
    return Object::steal(
        PyObject_CallFunctionObjArgs(type, start.get(), stop.get(), step.get(), nullptr));
  }
  return Object::steal(PyObject_CallOneArg(type, constant));
}

Object replay(const Step& step, std::span<PyObject*> inputs) {
  switch (step.kind) {
    case StepKind::build_tuple: return build_tuple(inputs);
    case StepKind::build_list: return build_list(inputs);
    case StepKind::build_set: return build_set(inputs);
    case StepKind::build_map: return build_map(inputs);
    case StepKind::build_slice:
      return Object::steal(
          PySlice_New(inputs[0], inputs[1], inputs.size() > 2 ? inputs[2] : nullptr));
    case StepKind::build_size: return build_size(inputs);
    case StepKind::call: return call(step, inputs);
    case StepKind::set_attr: return done(set_attribute(inputs[0], inputs[1], inputs[2]));
    case StepKind::del_attr: return done(set_attribute(inputs[0], inputs[1], nullptr));
    case StepKind::set_item: return done(set_item(inputs[0], inputs[1], inputs[2]));
    case StepKind::del_item: return done(set_item(inputs[0], inputs[1], nullptr));
    case StepKind::list_append: return done(PyList_Append(inputs[0], inputs[1]));
    case StepKind::new_cell: return Object::steal(PyCell_New(inputs[0]));
    case StepKind::set_cell: return done(PyCell_Set(inputs[0], inputs[1]));
    case StepKind::make_function: return make_function(step, inputs);
    case StepKind::instance_dict: return Object::steal(PyObject_GenericGetDict(inputs[0], nullptr));
    case StepKind::bound_method: return Object::steal(PyMethod_New(inputs[0], inputs[1]));
    case StepKind::iterator:
      return make_iterator(reinterpret_cast<PyTypeObject*>(step.names.get()), inputs[0], step.arg);
    case StepKind::advance: return done(advance(inputs[0], 1) ? 0 : -1);
    case StepKind::copy: return copy_of(inputs[0]);
  }
  SMELT_CHECK(false, "a step of no kind");
  return Object();
}

}  // namespace smelt::bytecode
