// What the program has dropped is gone for the trace too, at the end of the instruction: its
// memory, and what the death of an object sets off.
//
// An object that the trace made is forgotten: the steps know it by number. One from outside leaves
// its type behind, for the guards on it. A tensor from outside stays as an example for the
// compiler, without its contents.
#include <algorithm>

#include "capture/bytecode/trace/trace_lifetimes.h"

namespace smelt::bytecode {
namespace {

bool has_weak_references(PyObject* object) {
  const Py_ssize_t offset = Py_TYPE(object)->tp_weaklistoffset;
  return offset != 0 &&
         *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object) + offset) != nullptr;
}

}  // namespace

void TraceLifetimes::depend_on_finaliser(PyObject* object) {
  const Tracked* tracked = find(object);
  if (tracked == nullptr || tracked->born || tensors().is_tensor(object)) return;
  guard(tracked->ref, kGuardType);
  if (has_finaliser(object)) stop(BreakReason::c_callback, "__del__");
}

// The address means nothing any more when this has ended: another object may get it.
Object TraceLifetimes::forget(PyObject* object) {
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
bool TraceLifetimes::is_dropped(PyObject* object) {
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

Object TraceLifetimes::take_dropped(size_t since) {
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
