// What C code made, without the trace having seen how.
#include "capture/bytecode/cpython/private_api.h"
#include "capture/bytecode/nodes/replay.h"
#include "capture/bytecode/trace/trace_steps.h"

namespace smelt::bytecode {
namespace {

std::vector<PyObject*> set_elements(PyObject* set) {
  std::vector<PyObject*> elements;
  Py_ssize_t at = 0;
  PyObject* item;
  Py_hash_t hash;
  while (_PySet_NextEntry(set, &at, &item, &hash)) elements.push_back(item);
  return elements;
}

// Whether a set that is made of its elements one by one goes through them in the same order: one
// that has been larger has a larger table.
bool can_be_remade(PyObject* set) {
  const std::vector<PyObject*> elements = set_elements(set);
  const Object again = Object::steal(PySet_New(nullptr));
  for (PyObject* element : elements)
    if (!again || PySet_Add(again.get(), element) < 0) {
      PyErr_Clear();
      return false;
    }
  return set_elements(again.get()) == elements;
}

}  // namespace

// One that nobody else has was made just now, and each call makes its own.
Ref TraceSteps::adopt_constant(PyObject* object, int holders) {
  if (is_shared(object) || is_fixed(object) || Py_REFCNT(object) > holders)
    return element_ref(object);
  if (PyTuple_CheckExact(object)) {
    std::vector<Value> items;
    for (Py_ssize_t i = 0; i < Py_SIZE(object); ++i) {
      PyObject* item = PyTuple_GET_ITEM(object, i);
      items.push_back({item, adopt(item)});
    }
    return make(StepKind::build_tuple, items, object);
  }
  // The step keeps one of its own, as this one is what it makes.
  Object copy = copy_of(object);
  if (!copy) {
    PyErr_Clear();
    return 0;
  }
  const Value original[] = {{copy.get(), 0}};
  hold(copy.get());
  return make(StepKind::copy, original, object);
}

Ref TraceSteps::adopt(PyObject* object, int holders) {
  if (!active()) return 0;
  if (const Ref known = ref_of(object)) return known;
  if (is_constant(object)) return adopt_constant(object, holders);
  if (tensors().is_wrapped(object)) {  // it ends with its transform, and no call makes it again
    transient(object);
    return ref_of(object);
  }
  if (tensors().is_tensor(object)) return tensor(object);
  std::vector<Value> items;
  StepKind kind = StepKind::build_tuple;
  if (PyTuple_CheckExact(object) || PyList_CheckExact(object)) {
    if (PyList_CheckExact(object)) kind = StepKind::build_list;
    for (Py_ssize_t i = 0; i < Py_SIZE(object); ++i) {
      PyObject* item =
          PyList_CheckExact(object) ? PyList_GET_ITEM(object, i) : PyTuple_GET_ITEM(object, i);
      items.push_back({item, adopt(item)});
    }
  } else if (PyDict_CheckExact(object)) {
    kind = StepKind::build_map;
    PyObject *key, *item;
    Py_ssize_t at = 0;
    while (PyDict_Next(object, &at, &key, &item)) {
      items.push_back({key, adopt(key)});
      items.push_back({item, adopt(item)});
    }
  } else if (PySet_CheckExact(object) && is_constant_set(object) && can_be_remade(object)) {
    kind = StepKind::build_set;
    for (PyObject* item : set_elements(object)) items.push_back({item, 0});
  } else if (is_struct_sequence(object)) {
    Object plain = Object::steal(PyTuple_GetSlice(object, 0, PyTuple_GET_SIZE(object)));
    hold(plain.get());
    items = {{reinterpret_cast<PyObject*>(Py_TYPE(object)), 0}, {plain.get(), adopt(plain.get())}};
    kind = StepKind::call;
  } else {
    stop(BreakReason::unknown_object, Py_TYPE(object)->tp_name);
    return 0;
  }
  return active() ? make(kind, items, object) : 0;
}

}  // namespace smelt::bytecode
