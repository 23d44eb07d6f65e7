// Stands in a class's dict as its __call__, so it is called with the instance in front, and calls
// what the instance has in its slot.
#include <Python.h>
#include <structmember.h>

#include "binding/compiled_function.h"

namespace smelt {

using namespace bytecode;
namespace {

struct InstanceCall {
  PyObject ob_base;
  vectorcallfunc vectorcall;
  PyObject* slot;      // member descriptor
  PyObject* fallback;  // for instances whose slot is empty
};

InstanceCall* cast(PyObject* object) { return reinterpret_cast<InstanceCall*>(object); }

// The class of the model has the __call__ that was compiled.
bool is_still_called(const CompiledFunction* compiled) {
  static PyObject* const name = PyUnicode_InternFromString("__call__");
  PyObject* found = _PyType_Lookup(Py_TYPE(compiled->bound), name);
  if (found == compiled->function) return true;
  return found != nullptr && Py_TYPE(found) == compiled_function_type &&
         reinterpret_cast<CompiledFunction*>(found)->function == compiled->function;
}

PyObject* call_instance(PyObject* object, PyObject* const* args, size_t nargsf, PyObject* names) {
  const InstanceCall* self = cast(object);
  const size_t count = PyVectorcall_NARGS(nargsf);
  if (count == 0) {
    PyErr_SetString(PyExc_TypeError, "__call__ takes the instance as its first argument");
    return nullptr;
  }
  PyObject* instance = args[0];
  const Object callable = Object::steal(
      Py_TYPE(self->slot)
          ->tp_descr_get(self->slot, instance, reinterpret_cast<PyObject*>(Py_TYPE(instance))));
  if (!callable) {
    PyErr_Clear();
    return PyObject_Vectorcall(self->fallback, args, nargsf, names);
  }
  auto* compiled = reinterpret_cast<CompiledFunction*>(callable.get());
  if (Py_TYPE(callable.get()) == compiled_function_type && compiled->bound) {
    if (!is_still_called(compiled)) {
      const Object bound = Object::share(compiled->bound);
      return PyObject_Vectorcall(bound.get(), args + 1, count - 1, names);
    }
    return run_with_first(compiled, compiled->bound, args, 1, nargsf, names);
  }
  return PyObject_Vectorcall(callable.get(), args + 1, count - 1, names);
}

PyObject* new_call(PyTypeObject* type, PyObject* args, PyObject*) {
  PyObject *slot, *fallback;
  if (!PyArg_ParseTuple(args, "OO:InstanceCall", &slot, &fallback)) return nullptr;
  if (!Py_TYPE(slot)->tp_descr_get)
    return PyErr_Format(PyExc_TypeError, "InstanceCall takes a slot's descriptor, not %s",
                        Py_TYPE(slot)->tp_name);
  PyObject* object = type->tp_alloc(type, 0);
  if (!object) return nullptr;
  InstanceCall* self = cast(object);
  self->vectorcall = call_instance;
  self->slot = Py_NewRef(slot);
  self->fallback = Py_NewRef(fallback);
  return object;
}

int traverse_call(PyObject* object, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(cast(object)->slot);
  Py_VISIT(cast(object)->fallback);
  return 0;
}

int clear_call(PyObject* object) {
  Py_CLEAR(cast(object)->slot);
  Py_CLEAR(cast(object)->fallback);
  return 0;
}

void free_call(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  clear_call(object);
  type->tp_free(object);
  Py_DECREF(type);
}

PyObject* bind_call(PyObject* object, PyObject* instance, PyObject*) {
  return instance && instance != Py_None ? PyMethod_New(object, instance) : Py_NewRef(object);
}

}  // namespace

PyTypeObject* make_instance_call_type(PyObject* module) {
  static PyMemberDef members[] = {
      {"__vectorcalloffset__", T_PYSSIZET, offsetof(InstanceCall, vectorcall), READONLY, nullptr},
      {"__wrapped__", T_OBJECT, offsetof(InstanceCall, fallback), READONLY, nullptr},
      {}};
  static PyType_Slot slots[] = {
      {Py_tp_doc, const_cast<char*>("__call__ of a class that smelt.compile made.")},
      {Py_tp_new, reinterpret_cast<void*>(new_call)},
      {Py_tp_dealloc, reinterpret_cast<void*>(free_call)},
      {Py_tp_traverse, reinterpret_cast<void*>(traverse_call)},
      {Py_tp_clear, reinterpret_cast<void*>(clear_call)},
      {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
      {Py_tp_descr_get, reinterpret_cast<void*>(bind_call)},
      {Py_tp_members, members},
      {}};
  static PyType_Spec spec = {"smelt._native.InstanceCall", sizeof(InstanceCall), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                                 Py_TPFLAGS_METHOD_DESCRIPTOR,
                             slots};
  return reinterpret_cast<PyTypeObject*>(PyType_FromModuleAndSpec(module, &spec, nullptr));
}

}  // namespace smelt
