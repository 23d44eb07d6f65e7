// Where a trace can end, and what may be alive there: an iterator that can be made again, and
// nothing that can't.
#include <algorithm>

#include "capture/bytecode/iterators.h"
#include "capture/bytecode/trace.h"

namespace smelt::bytecode {

Position Trace::position() const {
  return {steps_.size(),  log_->position(), guards_.size(),
          absent_.size(), lookups_.size(),  aliases_.size()};
}

// -1: it can't be made again.
int Trace::iterator_position(const Tracked& tracked) const {
  const Tracked* over = find(tracked.iterated.object);
  if (over != nullptr && over->shrunk) return -1;
  return static_cast<int>(position_of(tracked.object.get()));
}

void Trace::checkpoint(int offset, int depth, std::span<PyObject* const> slots,
                       std::span<const Ref> refs) {
  if (!active()) return;
  Checkpoint next;
  next.iterator_at.assign(slots.size(), -1);
  for (size_t i = 0; i < slots.size(); ++i) {
    PyObject* object = slots[i];
    const Value found = object == nullptr ? Value{} : value(object, refs[i]);
    next.slots.push_back(found);
    if (object == nullptr) continue;
    if (found.ref == 0 && !is_constant(object)) return;
    const Tracked* tracked = find(object);
    if (tracked != nullptr && tracked->transient) return;
    if (tracked != nullptr && tracked->born && tracked->iterated.object) {
      const int at = iterator_position(*tracked);
      if (at < 0 || std::ranges::count(slots, object) > 1) return;
      next.iterator_at[i] = at;
    }
    next.held.push_back(Object::share(object));
  }
  next.offset = offset;
  next.depth = depth;
  next.position = position();
  checkpoint_ = std::move(next);
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
    const auto found = objects_.find(transients_[i]);
    if (Py_REFCNT(transients_[i]) > 1) continue;
    Object dropped = std::move(found->second.object);
    objects_.erase(found);
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
  PyObject* over = iterated_by(iterator);
  if (!active() || !opens_iterators || tracked == nullptr || tracked->born || over == nullptr ||
      tracked->iterated.object != nullptr || position_of(iterator) < 0)
    return false;
  const Ref ref = tracked->ref;
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
