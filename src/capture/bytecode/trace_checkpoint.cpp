// Where a trace can end, and what may be alive there: an iterator that can be made again, and
// nothing that can't.
#include <algorithm>

#include "capture/bytecode/iterators.h"
#include "capture/bytecode/trace.h"

namespace smelt::bytecode {

Position Trace::position() const {
  return {steps_.size(),   log_->position(), guards_.size(),   absent_.size(),
          lookups_.size(), aliases_.size(),  readings_.size(), remembered_.size()};
}

// Whether it can be made again as it is now. What it goes over is held, as it may be dropped before
// the trace ends.
bool Trace::describe(PyObject* iterator, Remade& how, std::vector<Object>& held) const {
  const std::optional<IteratorParts> parts = parts_of(iterator);
  if (!parts) return false;
  how.type = Object::share(reinterpret_cast<PyObject*>(Py_TYPE(iterator)));
  if (!parts->over) {
    how.arguments.resize(parts->arguments.size());
    for (size_t i = 0; i < parts->arguments.size(); ++i)
      if (!describe_argument(parts->arguments[i].get(), how.arguments[i], held)) return false;
    return true;
  }
  PyObject* over = parts->over.get();
  const Tracked* container = find(over);
  if (container != nullptr && (container->shrunk || container->transient)) return false;
  how.over = value(over);
  how.position = static_cast<int>(parts->position);
  held.push_back(parts->over);
  return how.over.ref != 0 || is_constant(over);
}

bool Trace::describe_argument(PyObject* argument, Remade& how, std::vector<Object>& held) const {
  const Tracked* tracked = find(argument);
  if (PyIter_Check(argument)) {
    // Whoever else has it would see it move on.
    const Py_ssize_t holders = Py_REFCNT(argument) - (tracked != nullptr ? 1 : 0);
    const Py_ssize_t known = 2;  // the iterator around it, and the list of its parts
    return holders <= known && describe(argument, how, held);
  }
  how.over = value(argument);
  held.push_back(Object::share(argument));
  return !is_passing(argument) && (how.over.ref != 0 || is_constant(argument));
}

void Trace::checkpoint(int offset, int depth, std::span<PyObject* const> slots,
                       std::span<const Ref> refs) {
  if (!active()) return;
  Checkpoint next;
  next.remade.resize(slots.size());
  for (size_t i = 0; i < slots.size(); ++i) {
    PyObject* object = slots[i];
    const Value found = object == nullptr ? Value{} : value(object, refs[i]);
    next.slots.push_back(found);
    if (object == nullptr) continue;
    if (found.ref == 0 && !is_constant(object)) return;
    if (is_passing(object) &&
        (std::ranges::count(slots, object) > 1 || !describe(object, next.remade[i], next.held)))
      return;
    next.held.push_back(Object::share(object));
  }
  next.offset = offset;
  next.depth = depth;
  next.position = position();
  checkpoint_ = std::move(next);
}

// The step, and those for what it goes over.
Ref Trace::remake(const Remade& how) {
  std::vector<Operand> inputs;
  if (how.over.object != nullptr) {
    inputs.push_back(operand(how.over));
  } else {
    inputs.push_back({0, how.type});
    for (const Remade& argument : how.arguments)
      inputs.push_back(argument.type ? Operand{remake(argument), {}} : operand(argument.over));
  }
  Node node;
  node.kind = NodeKind::result;
  node.index = static_cast<int32_t>(steps_.size());
  const Ref ref = add(std::move(node));
  if (how.over.object != nullptr)
    steps_.push_back({StepKind::iterator, how.position, how.type, std::move(inputs), ref, false});
  else
    steps_.push_back({StepKind::call, 0, {}, std::move(inputs), ref, false});
  return ref;
}

void Trace::iterator(PyObject* object, Value iterated) {
  if (!active()) return;
  Node node;
  node.kind = NodeKind::result;
  node.index = -1;  // made when the trace ends, if it lives that long
  hold(iterated.object);
  track(object, add(std::move(node)), true).iterated = value(iterated.object, iterated.ref);
}

void Trace::transient(PyObject* object) {
  if (!active()) return;
  if (Tracked* known = find(object)) {
    if (known->iterated.object != nullptr || known->transient) return;
    known->transient = true;
    if (known->born) transients_.push_back(object);
    return;
  }
  Node node;
  node.kind = NodeKind::result;
  node.index = -1;
  track(object, add(std::move(node)), true).transient = true;
  transients_.push_back(object);
}

Object Trace::take_dropped() {
  for (size_t i = 0; i < transients_.size(); ++i) {
    if (Py_REFCNT(transients_[i]) > 1) continue;
    Object dropped = std::move(objects_.find(transients_[i])->object);
    objects_.forget(transients_[i]);
    transients_.erase(transients_.begin() + static_cast<ptrdiff_t>(i));
    return dropped;
  }
  return {};
}

bool Trace::iterated(PyObject* iterator, Value* over, int* position) const {
  const Tracked* tracked = find(iterator);
  if (tracked == nullptr || tracked->iterated.object == nullptr) return false;
  *over = tracked->iterated;
  *position = static_cast<int>(position_of(iterator));
  return true;
}

bool Trace::open_iterator(PyObject* iterator) {
  Tracked* tracked = find(iterator);
  if (!active() || !opens_iterators || tracked == nullptr || tracked->born ||
      tracked->iterated.object != nullptr)
    return false;
  const Ref ref = tracked->ref;
  if (const Object left = left_of_range(iterator)) {
    nodes_[ref].keys = left;
    guard(ref, kGuardType | kGuardPosition);
    hold(left.get());
    tracked->iterated = {left.get(), 0};
    ++opened_iterators;
    return true;
  }
  PyObject* over = iterated_by(iterator);
  if (over == nullptr || position_of(iterator) < 0) return false;
  nodes_[ref].length = position_of(iterator);
  guard(ref, kGuardType | kGuardPosition);
  hold(over);
  const Value container{over, read(NodeKind::iterated, {iterator, ref}, nullptr, 0, over)};
  if (!active()) return false;
  find(iterator)->iterated = value(container.object, container.ref);
  ++opened_iterators;
  return true;
}

}  // namespace smelt::bytecode
