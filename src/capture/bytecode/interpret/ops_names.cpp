// Locals, cells, globals, and the names of class bodies.
#include "capture/bytecode/interpret/instruction_handlers.h"

namespace smelt::bytecode {
namespace {

// NameError and its kind, which keep the name so that suggestions can be made.
void raise_name_error(PyObject* type, const char* format, PyObject* name) {
  PyErr_Format(type, format, name);
  if (type != PyExc_NameError) return;
  Object error = take_error();
  if (error && PyObject_SetAttrString(error.get(), "name", name) < 0) PyErr_Clear();
  restore_error(std::move(error));
}

}  // namespace

InstructionHandlers::Flow InstructionHandlers::unbound(int slot) {
  const bool is_free = slot >= locals_ - code_->co_nfreevars;
  if (is_free)
    raise_name_error(PyExc_NameError,
                     "cannot access free variable '%U' where it is not associated with a value in "
                     "enclosing scope",
                     local_name(slot));
  else
    raise_name_error(PyExc_UnboundLocalError,
                     "cannot access local variable '%U' where it is not associated with a value",
                     local_name(slot));
  return Flow::error;
}

InstructionHandlers::Flow InstructionHandlers::undefined(PyObject* key) {
  raise_name_error(PyExc_NameError, "name '%U' is not defined", key);
  return Flow::error;
}

// -- locals

InstructionHandlers::Flow InstructionHandlers::load_const(int index) {
  push(Py_NewRef(constant(index)), 0);
  return Flow::next;
}

InstructionHandlers::Flow InstructionHandlers::load_fast(int index) {
  const Value value = at(index);
  if (value.object == nullptr) return unbound(index);
  push(Py_NewRef(value.object), value.ref);
  return Flow::next;
}

// A comprehension's variable hides a local, which may be unset.
InstructionHandlers::Flow InstructionHandlers::load_fast_and_clear(int index) {
  const Value value = at(index);
  set(index, nullptr, 0);
  push(value.object, value.ref);
  return Flow::next;
}

InstructionHandlers::Flow InstructionHandlers::store_fast(int index) {
  const Value value = peek(1);
  PyObject* old = slots_[index];
  pop();
  set(index, value.object, value.ref);
  let_go_of_variable(old);
  return Flow::next;
}

InstructionHandlers::Flow InstructionHandlers::delete_fast(int index) {
  PyObject* old = slots_[index];
  if (old == nullptr) return unbound(index);
  set(index, nullptr, 0);
  let_go_of_variable(old);
  return Flow::next;
}

// -- globals

// A new reference, or nullptr without an error if there is no such name. False: an error is set.
bool InstructionHandlers::find_global(PyObject* key, Result* result) {
  const Value places[] = {{frame_.globals(), 0}, {frame_.builtins(), 0}};
  for (const Value place : places) {
    if (!PyDict_CheckExact(place.object)) {  // exec() with a mapping of the user's
      stop(BreakReason::attribute,
           "a global from a " + std::string(Py_TYPE(place.object)->tp_name));
      result->object = PyObject_GetItem(place.object, key);
      if (result->object != nullptr) return true;
      if (!PyErr_ExceptionMatches(PyExc_KeyError)) return false;
      PyErr_Clear();
      continue;
    }
    PyObject* found = PyDict_GetItemWithError(place.object, key);
    if (found != nullptr) {
      result->object = Py_NewRef(found);
      if (live() != nullptr) result->ref = live()->read_dict(place, key, found);
      return true;
    }
    if (PyErr_Occurred() != nullptr) return false;
    if (live() != nullptr) live()->read_absent(place, key);
  }
  return true;
}

InstructionHandlers::Flow InstructionHandlers::load_global(int index, bool push_null) {
  Result found;
  if (!find_global(name(index), &found)) return Flow::error;
  if (found.object == nullptr) return undefined(name(index));
  if (push_null) push(nullptr, 0);
  push(found);
  return Flow::next;
}

InstructionHandlers::Flow InstructionHandlers::store_global(int index) {
  return done(1, set_item(trace_, {frame_.globals(), 0}, {name(index), 0}, peek(1)));
}

InstructionHandlers::Flow InstructionHandlers::delete_global(int index) {
  PyObject* key = name(index);
  const int known = PyDict_Contains(frame_.globals(), key);
  if (known == 0) return undefined(key);
  if (known < 0 || !delete_item(trace_, {frame_.globals(), 0}, {key, 0})) return Flow::error;
  return Flow::next;
}

// -- class bodies and modules, which CPython runs by itself in all but odd cases: done, but not
// accounted for

bool InstructionHandlers::find_in_namespace(PyObject* dict, PyObject* key, PyObject** found) {
  *found = PyObject_GetItem(dict, key);
  if (*found != nullptr) return true;
  if (!PyErr_ExceptionMatches(PyExc_KeyError)) return false;
  PyErr_Clear();
  return true;
}

InstructionHandlers::Flow InstructionHandlers::load_name(int index) {
  stop(BreakReason::opcode, "LOAD_NAME");
  if (frame_.names() == nullptr) {
    PyErr_Format(PyExc_SystemError, "no locals when loading %R", name(index));
    return Flow::error;
  }
  Result found;
  if (!find_in_namespace(frame_.names(), name(index), &found.object)) return Flow::error;
  if (found.object == nullptr && !find_global(name(index), &found)) return Flow::error;
  if (found.object == nullptr) return undefined(name(index));
  push(found);
  return Flow::next;
}

InstructionHandlers::Flow InstructionHandlers::store_name(int index) {
  stop(BreakReason::opcode, "STORE_NAME");
  if (frame_.names() == nullptr) {
    PyErr_Format(PyExc_SystemError, "no locals found when storing %R", name(index));
    return Flow::error;
  }
  return done(1, PyObject_SetItem(frame_.names(), name(index), peek(1).object) == 0);
}

InstructionHandlers::Flow InstructionHandlers::delete_name(int index) {
  stop(BreakReason::opcode, "DELETE_NAME");
  if (frame_.names() == nullptr) {
    PyErr_Format(PyExc_SystemError, "no locals when deleting %R", name(index));
    return Flow::error;
  }
  if (PyObject_DelItem(frame_.names(), name(index)) == 0) return Flow::next;
  return undefined(name(index));
}

InstructionHandlers::Flow InstructionHandlers::load_locals() {
  stop(BreakReason::opcode, "LOAD_LOCALS");
  if (frame_.names() == nullptr) {
    PyErr_SetString(PyExc_SystemError, "no locals");
    return Flow::error;
  }
  push(Py_NewRef(frame_.names()), 0);
  return Flow::next;
}

InstructionHandlers::Flow InstructionHandlers::load_from_dict_or_globals(int index) {
  stop(BreakReason::opcode, "LOAD_FROM_DICT_OR_GLOBALS");
  Result found;
  if (!find_in_namespace(peek(1).object, name(index), &found.object)) return Flow::error;
  if (found.object == nullptr && !find_global(name(index), &found)) return Flow::error;
  if (found.object == nullptr) return undefined(name(index));
  return replace(1, found);
}

InstructionHandlers::Flow InstructionHandlers::load_from_dict_or_cell(PyObject* dict, int slot,
                                                                      int inputs) {
  stop(BreakReason::opcode, "LOAD_CLASSDEREF");
  Result found;
  if (!find_in_namespace(dict, local_name(slot), &found.object)) return Flow::error;
  if (found.object == nullptr) found.object = Py_XNewRef(PyCell_GET(slots_[slot]));
  if (found.object == nullptr) return unbound(slot);
  return replace(inputs, found);
}

InstructionHandlers::Flow InstructionHandlers::load_class_cell(int slot) {
  return load_from_dict_or_cell(frame_.names(), slot, 0);
}

// -- cells

InstructionHandlers::Flow InstructionHandlers::make_cell(int slot) {
  const Value initial = at(slot);
  PyObject* cell = PyCell_New(initial.object);
  if (cell == nullptr) return Flow::error;
  const Ref ref = live() != nullptr ? live()->make(StepKind::new_cell, {&initial, 1}, cell) : 0;
  set(slot, cell, ref);
  let_go(initial.object);
  return Flow::next;
}

InstructionHandlers::Flow InstructionHandlers::copy_free_vars(int count) {
  auto* function = reinterpret_cast<PyObject*>(frame_.function());
  PyObject* closure = PyFunction_GET_CLOSURE(function);
  for (int i = 0; i < count; ++i) {
    PyObject* cell = PyTuple_GET_ITEM(closure, i);
    Ref ref = 0;
    if (live() != nullptr)
      ref =
          live()->read(NodeKind::closure, live()->value(function, function_ref_), nullptr, i, cell);
    set(locals_ - count + i, Py_NewRef(cell), ref);
  }
  return Flow::next;
}

InstructionHandlers::Flow InstructionHandlers::load_closure(int slot) {
  const Value cell = at(slot);
  if (cell.object == nullptr) return unbound(slot);
  push(Py_NewRef(cell.object), cell.ref);
  return Flow::next;
}

InstructionHandlers::Flow InstructionHandlers::load_cell(int slot) {
  const Value cell = at(slot);
  PyObject* object = PyCell_GET(cell.object);
  if (object == nullptr) {
    // Nothing is known of cells that are empty when the trace finds them.
    if (live() != nullptr && !live()->is_born(cell.object))
      stop(BreakReason::mutation, "a variable of an enclosing function that is not set");
    return unbound(slot);
  }
  const Ref ref = live() != nullptr ? live()->read_cell(cell, object) : 0;
  push(Py_NewRef(object), ref);
  return Flow::next;
}

InstructionHandlers::Flow InstructionHandlers::store_cell(int slot) {
  const Value inputs[] = {at(slot), peek(1)};
  if (live() != nullptr) live()->effect(StepKind::set_cell, inputs);
  PyObject* old = PyCell_GET(inputs[0].object);
  PyCell_SET(inputs[0].object, pop());
  let_go(old);
  return Flow::next;
}

InstructionHandlers::Flow InstructionHandlers::delete_cell(int slot) {
  const Value inputs[] = {at(slot), {}};
  PyObject* old = PyCell_GET(inputs[0].object);
  if (old == nullptr) return unbound(slot);
  if (live() != nullptr) live()->effect(StepKind::set_cell, inputs);
  PyCell_SET(inputs[0].object, nullptr);
  let_go(old);
  return Flow::next;
}

}  // namespace smelt::bytecode
