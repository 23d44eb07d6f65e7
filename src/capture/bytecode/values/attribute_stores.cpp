// Attributes set and deleted, as object.__setattr__ does it, step by step.
#include "capture/bytecode/cpython/names.h"
#include "capture/bytecode/values/attribute_lookup.h"

namespace smelt::bytecode {
namespace {

// The setter that a type has: nullptr for object.__setattr__, the function for one written in
// Python.
bool find_setter(PyTypeObject* type, PyObject* name, PyObject** setter) {
  *setter = nullptr;
  if (type->tp_setattro == PyObject_GenericSetAttr) return true;
  static PyObject* generic_set = _PyType_Lookup(&PyBaseObject_Type, names().setattr);
  static PyObject* generic_del = _PyType_Lookup(&PyBaseObject_Type, names().delattr);
  PyObject* found = _PyType_Lookup(type, name);
  if (found == generic_set || found == generic_del) return true;
  if (found == nullptr || !(PyFunction_Check(found) || is_method_in_c(found))) return false;
  *setter = found;
  return true;
}

void stop_at_change(Trace& trace, Value object, PyObject* name) {
  trace.stop(BreakReason::mutation,
             std::string(Py_TYPE(object.object)->tp_name) + "." + text_of(name));
}

// The place in a dict that the attribute is stored in.
void note_store(Trace& trace, Value object, PyObject* dict, Ref dict_ref, PyObject* name,
                Value value) {
  if (trace.is_born(object.object)) {
    const Value inputs[] = {object, {name, 0}, value};
    trace.effect(value.object ? StepKind::set_attr : StepKind::del_attr,
                 std::span(inputs, value.object ? 3 : 2));
  } else {
    if (value.object == nullptr)  // it has to be there
      if (PyObject* present = PyDict_GetItemWithError(dict, name))
        trace.read_dict({dict, dict_ref}, name, present);
    const Value inputs[] = {{dict, dict_ref}, {name, 0}, value};
    trace.effect(value.object ? StepKind::set_item : StepKind::del_item,
                 std::span(inputs, value.object ? 3 : 2));
  }
}

// Part of the tensor program: what comes behind it there may depend on it.
bool set_grad(Trace& trace, Value tensor, PyObject* name, Value grad) {
  trace.use(tensor);
  if (grad.object != nullptr) trace.use(grad);
  if (PyObject_GenericSetAttr(tensor.object, name, grad.object) != 0) {
    trace.stop(BreakReason::raised, "setting a gradient");
    return false;
  }
  trace.set_grad(tensor, grad);
  return true;
}

// As requires_grad_() does it, where the log keeps account of the tensor.
bool require_grad(Trace& trace, Value tensor, Value flag) {
  static PyObject* const name = PyUnicode_InternFromString("requires_grad_");
  PyTypeObject* type = Py_TYPE(tensor.object);
  PyObject* method = _PyType_Lookup(type, name);
  const Value arguments[] = {tensor, flag};
  const Result result =
      call(&trace, {method, trace.read_type(type, name, method)}, arguments, nullptr);
  Py_XDECREF(result.object);
  return result.object != nullptr;
}

// Of the result of an op that has a gradient it is an error.
bool may_require_grad(PyObject* tensor, PyObject* flag) {
  if (flag == nullptr || !PyBool_Check(flag)) return false;
  const Object leaf = Object::steal(PyObject_GetAttrString(tensor, "is_leaf"));
  PyErr_Clear();
  return leaf.get() == Py_True;
}

// That it is there, to be deleted.
bool depend_on_field(Trace& trace, Value object, PyObject* name) {
  if (trace.is_born(object.object)) return true;
  const Result field = get_attribute(&trace, object, name);
  Py_XDECREF(field.object);
  if (field.object != nullptr) return true;
  PyErr_Clear();
  trace.stop(BreakReason::raised, "deleting an attribute that is not there");
  return false;
}

// A descriptor of the type decides what a store does. True: it has been done, with the result in
// *ok.
bool store_through_descriptor(Trace& trace, Value object, PyObject* name, Value value, bool* ok) {
  PyTypeObject* type = Py_TYPE(object.object);
  PyObject* found = _PyType_Lookup(type, name);
  const Ref ref = trace.read_type(type, name, found);
  if (found == nullptr || Py_TYPE(found)->tp_descr_set == nullptr) return false;
  PyTypeObject* kind = Py_TYPE(found);
  Object held = Object::share(found);
  Result result;
  if (kind == &PyProperty_Type) {
    PyObject* which = value.object ? names().fset : names().fdel;
    Object setter = Object::steal(PyObject_GetAttr(found, which));
    if (!setter || setter.get() == Py_None) return false;  // raises
    const Value arguments[] = {object, value};
    result = call(&trace, field(trace, {found, ref}, which, setter.get()),
                  std::span(arguments, value.object ? 2 : 1), nullptr);
  } else if (PyObject* set = _PyType_Lookup(kind, value.object ? names().set : names().del);
             set != nullptr && PyFunction_Check(set)) {
    const Value arguments[] = {{found, ref}, object, value};
    result =
        call(&trace, {set, trace.read_type(kind, value.object ? names().set : names().del, set)},
             std::span(arguments, value.object ? 3 : 2), nullptr);
  } else if ((kind == &PyMemberDescr_Type && !tensors().is_tensor(object.object)) ||
             (PyFunction_Check(object.object) && trace.is_born(object.object))) {
    if (value.object == nullptr && !depend_on_field(trace, object, name)) return false;  // raises
    const Value inputs[] = {object, {name, 0}, value};
    trace.effect(value.object ? StepKind::set_attr : StepKind::del_attr,
                 std::span(inputs, value.object ? 3 : 2));
    return false;
  } else if (is_function_context(object.object) && trace.is_born(object.object)) {
    return false;  // gone with it: the function that has it is called again
  } else if (tensors().is_tensor(object.object) && text_of(name) == "grad") {
    *ok = set_grad(trace, object, name, value);
    return true;
  } else if (tensors().is_tensor(object.object) && text_of(name) == "requires_grad" &&
             may_require_grad(object.object, value.object)) {
    *ok = require_grad(trace, object, value);
    return true;
  } else {
    stop_at_change(trace, object, name);
    return false;
  }
  *ok = result.object != nullptr;
  Py_XDECREF(result.object);
  return true;
}

bool store_plainly(Trace* trace, Value object, PyObject* name, Value value) {
  if (PyObject_SetAttr(object.object, name, value.object) == 0) return true;
  if (trace != nullptr) trace->stop(BreakReason::raised, "setting an attribute");
  return false;
}

}  // namespace

bool set_attribute(Trace* trace, Value object, PyObject* name, Value value) {
  if (!is_following(trace)) return store_plainly(nullptr, object, name, value);
  object = trace->value(object.object, object.ref);
  PyTypeObject* type = Py_TYPE(object.object);
  PyObject* which = value.object ? names().setattr : names().delattr;
  PyObject* setter;
  if (is_thread_local(object.object) && object.ref != 0 && value.object != nullptr &&
      has_in_thread_only(*trace, object, name)) {
    Ref ref = 0;
    const Object dict = thread_dict(*trace, object, &ref);
    if (!dict) return false;
    note_store(*trace, object, dict.get(), ref, name, value);
    return store_plainly(trace, object, name, value);
  }
  if (PyType_Check(object.object) || !find_setter(type, which, &setter) ||
      (object.ref == 0 && !is_fixed(object.object))) {
    stop_at_change(*trace, object, name);
    return store_plainly(trace, object, name, value);
  }
  if (setter == nullptr) return set_generic_attribute(trace, object, name, value);
  trace->guard_type(object);
  const Value arguments[] = {object, {name, 0}, value};
  const Result result = call(trace, {setter, trace->read_type(type, which, setter)},
                             std::span(arguments, value.object ? 3 : 2), nullptr);
  Py_XDECREF(result.object);
  return result.object != nullptr;
}

bool set_generic_attribute(Trace* trace, Value object, PyObject* name, Value value) {
  if (is_following(trace)) {
    object = trace->value(object.object, object.ref);
    trace->guard_type(object);
    bool ok;
    if (store_through_descriptor(*trace, object, name, value, &ok)) return ok;
    PyObject* found = _PyType_Lookup(Py_TYPE(object.object), name);
    if (found == nullptr || Py_TYPE(found)->tp_descr_set == nullptr) {
      Object dict = dict_of(object.object);
      if (!dict) {
        trace->use(object);  // raises
      } else {
        Ref dict_ref = 0;
        if (PyModule_Check(object.object)) trace->guard_same(object);
        if (!trace->is_born(object.object))
          dict_ref = trace->read(NodeKind::instance_dict, object, nullptr, 0, dict.get());
        if (value.object == nullptr && PyDict_GetItemWithError(dict.get(), name) == nullptr)
          trace->stop(BreakReason::raised, "deleting an attribute that is not there");
        note_store(*trace, object, dict.get(), dict_ref, name, value);
      }
    }
  }
  if (PyObject_GenericSetAttr(object.object, name, value.object) == 0) return true;
  if (trace != nullptr) trace->stop(BreakReason::raised, "setting an attribute");
  return false;
}

}  // namespace smelt::bytecode
