// What the program has dropped is gone for the trace too, at the end of the instruction: its
// memory, and what the death of an object sets off.
//
// An object that the trace made is forgotten: the steps know it by number. One from outside leaves
// its type behind, for the guards on it. A tensor from outside stays as an example for the
// compiler, without its contents.
#include <algorithm>

#include "capture/bytecode/trace/trace.h"

namespace smelt::bytecode {
namespace {

// Containers of more elements are not looked through for one that a method may take out.
constexpr Py_ssize_t kMostSearched = 1024;

bool has_weak_references(PyObject* object) {
  const Py_ssize_t offset = Py_TYPE(object)->tp_weaklistoffset;
  return offset != 0 &&
         *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object) + offset) != nullptr;
}

// What a dict or list has there.
PyObject* item_at(PyObject* container, PyObject* key) {
  if (PyDict_Check(container)) {
    if (!is_constant(key) && !tensors().is_tensor(key)) return nullptr;  // runs no code
    PyObject* item = PyDict_GetItemWithError(container, key);
    if (item == nullptr) PyErr_Clear();
    return item;
  }
  if (!PyList_Check(container) || !PyLong_CheckExact(key)) return nullptr;
  Py_ssize_t index = PyLong_AsSsize_t(key);
  if (index == -1 && PyErr_Occurred() != nullptr) PyErr_Clear();
  if (index < 0) index += PyList_GET_SIZE(container);
  return index >= 0 && index < PyList_GET_SIZE(container) ? PyList_GET_ITEM(container, index)
                                                          : nullptr;
}

}  // namespace

void LetGo::note_contents(PyObject* object, int depth) {
  const traverseproc traverse = Py_TYPE(object)->tp_traverse;
  if (traverse == nullptr || depth > kDeepest || !PyObject_IS_GC(object)) return;
  struct Visit {
    LetGo* let_go;
    int depth;
  };
  const visitproc visit = [](PyObject* held, void* state) {
    const auto* known = static_cast<Visit*>(state);
    if (Py_REFCNT(held) == 1)
      known->let_go->note_contents(held, known->depth + 1);
    else
      known->let_go->note(held);
    return 0;
  };
  Visit start{this, depth};
  traverse(object, visit, &start);
}

// A step is about to put something in the place of what is there, or to take that out.
void Trace::note_replaced(StepKind kind, std::span<const Value> inputs) {
  PyObject* target = inputs[0].object;
  switch (kind) {
    case StepKind::set_item:
    case StepKind::del_item: let_go.note(item_at(target, inputs[1].object)); break;
    case StepKind::set_attr:
    case StepKind::del_attr:
      let_go.note_contents(target);
      if (PyObject** dict = _PyObject_GetDictPtr(target); dict != nullptr && *dict != nullptr)
        let_go.note(item_at(*dict, inputs[1].object));
      break;
    case StepKind::call:
      if (inputs.size() < 2 || inputs[1].object == nullptr) break;
      if (length_of(inputs[1].object) <= kMostSearched) let_go.note_contents(inputs[1].object);
      break;
    default: break;
  }
}

void Trace::depend_on_finaliser(PyObject* object) {
  const Tracked* tracked = find(object);
  if (tracked == nullptr || tracked->born || tensors().is_tensor(object)) return;
  guard(tracked->ref, kGuardType);
  if (has_finaliser(object)) stop(BreakReason::c_callback, "__del__");
}

// The address means nothing any more when this has ended: another object may get it.
Object Trace::forget(PyObject* object) {
  Tracked known = objects_.take(object);
  views.erase(object);
  if (known.keeps) {
    let_go.note(known.keeps.get());
    let_go.note_contents(known.keeps.get());
    known.keeps = Object();  // which would look like someone who has them
  }
  let_go.note_contents(object);
  if (known.born) return std::move(known.object);
  const auto leave_type = [&](Ref ref) {
    Node& node = nodes_[ref];
    node.object = Object::share(reinterpret_cast<PyObject*>(Py_TYPE(object)));
    node.gone = true;
    node.length = std::max<int64_t>(known.length, node.length);
  };
  leave_type(known.ref);
  for (const AliasGuard& alias : required_.aliases)
    if (alias.same && nodes_[alias.b].object.get() == object) leave_type(alias.b);
  dropped_.push_back(known.ref);
  return std::move(known.object);
}

// Whether nobody but the trace has it, and the trace can do without.
bool Trace::is_dropped(PyObject* object) {
  Tracked* tracked = find(object);
  if (tracked == nullptr || tracked->transient || Py_REFCNT(object) > tracked->holds) return false;
  if (tracked->born) return true;
  const Node& node = nodes_[tracked->ref];
  if (node.kind == NodeKind::constant) return false;
  if (tensors().is_tensor(object)) {
    if (has_weak_references(object)) {
      stop(BreakReason::mutation, "a tensor to which weak references lead");
    } else if (changing != nullptr && !tracked->refusal) {  // else someone is given examples
      log_->free_contents(object);
      dropped_.push_back(tracked->ref);
    }
    return false;
  }
  // A guard asks for the very object, which no call finds again.
  if (node.asked & (kGuardSame | kGuardEqual | kGuardFunction)) {
    stop(BreakReason::mutation, "the last reference to an object");
    return false;
  }
  return true;
}

Object Trace::take_dropped(size_t since) {
  for (size_t i = 0; i < transients_.size(); ++i) {
    PyObject* object = transients_[i];
    if (Py_REFCNT(object) > 1) continue;
    transients_.erase(transients_.begin() + static_cast<ptrdiff_t>(i));
    return forget(object);
  }
  while (let_go.has_any(since))
    if (PyObject* object = let_go.take(); is_dropped(object)) return forget(object);
  return {};
}

}  // namespace smelt::bytecode
