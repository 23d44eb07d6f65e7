// Where a trace can end, and what may be alive there: an iterator that can be made again, and
// nothing that can't.
#include <algorithm>

#include "capture/bytecode/cpython/iterators.h"
#include "capture/bytecode/trace/trace.h"

namespace smelt::bytecode {

namespace {

// What an iterator in C goes over, and the iterators in between, which let go of it at the end.
Object parts_inside(PyObject* iterator) {
  const visitproc visit = [](PyObject* part, void* list) {
    auto* parts = static_cast<PyObject*>(list);
    if (PyType_Check(part) || PyFunction_Check(part)) return 0;
    if (PyList_Append(parts, part) < 0) PyErr_Clear();
    return 0;
  };
  Object parts = Object::steal(PyList_New(0));
  Py_TYPE(iterator)->tp_traverse(iterator, visit, parts.get());
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(parts.get()) && i < 16; ++i)
    if (PyObject* part = PyList_GET_ITEM(parts.get(), i);
        PyIter_Check(part) && !PyGen_CheckExact(part) && Py_TYPE(part)->tp_traverse != nullptr)
      Py_TYPE(part)->tp_traverse(part, visit, parts.get());
  return parts;
}

}  // namespace

Position Trace::position() const {
  return {steps_.size(),
          log_->position(),
          required_.guards.size(),
          required_.absent.size(),
          required_.lookups.size(),
          required_.aliases.size(),
          required_.readings.size(),
          required_.remembered.size()};
}

// Whether it can be made again as it is now. A constant that it goes over is held, as it may be
// dropped before the trace ends.
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
  if (how.over.ref == 0) held.push_back(parts->over);
  return how.over.ref != 0 || is_constant(over);
}

bool Trace::describe_argument(PyObject* argument, Remade& how, std::vector<Object>& held) const {
  const Tracked* tracked = find(argument);
  if (PyIter_Check(argument)) {
    // Whoever else has it would see it move on.
    Py_ssize_t known = 2;  // the iterator around it, and the list of its parts
    if (tracked != nullptr) ++known;
    for (PyObject* transient : transients_)
      if (const Object& kept = find(transient)->keeps; kept && PyList_CheckExact(kept.get()))
        known +=
            std::count(&PyList_GET_ITEM(kept.get(), 0),
                       &PyList_GET_ITEM(kept.get(), 0) + PyList_GET_SIZE(kept.get()), argument);
    return Py_REFCNT(argument) <= known && describe(argument, how, held);
  }
  how.over = value(argument);
  if (how.over.ref == 0) held.push_back(Object::share(argument));
  return !is_passing(argument) && (how.over.ref != 0 || is_constant(argument));
}

void Trace::checkpoint(int offset, int depth, std::span<PyObject* const> slots,
                       std::span<const Ref> refs) {
  if (!active()) return;
  Checkpoint next;
  next.remade.resize(slots.size());
  for (size_t i = 0; i < slots.size(); ++i) {
    PyObject* object = slots[i];
    Operand& slot = next.slots.emplace_back();
    if (object == nullptr) continue;
    slot.ref = value(object, refs[i]).ref;
    if (slot.ref == 0) {
      if (!is_constant(object)) return;
      slot.constant = Object::share(object);
    }
    if (is_passing(object) &&
        (std::ranges::count(slots, object) > 1 || !describe(object, next.remade[i], next.held)))
      return;
  }
  next.offset = offset;
  next.depth = depth;
  next.position = position();
  checkpoint_ = std::move(next);
}

// The step, and those for what it goes over, which may be gone by now.
Ref Trace::remake(const Remade& how) {
  const auto known = [](Value v) {
    return v.ref != 0 ? Operand{v.ref, {}} : Operand{0, Object::share(v.object)};
  };
  std::vector<Operand> inputs;
  if (how.over.object != nullptr) {
    inputs.push_back(known(how.over));
  } else {
    const bool is_generator = how.type.get() == reinterpret_cast<PyObject*>(&PyGen_Type);
    if (!is_generator) inputs.push_back({0, how.type});
    for (const Remade& argument : how.arguments)
      inputs.push_back(argument.type ? Operand{remake(argument), {}} : known(argument.over));
  }
  Node node;
  node.kind = NodeKind::result;
  node.index = static_cast<int32_t>(steps_.size());
  const Ref ref = add(std::move(node));
  if (how.over.object != nullptr)
    steps_.push_back({StepKind::iterator, how.position, how.type, std::move(inputs), ref, false,
                      log_->position()});
  else
    steps_.push_back({StepKind::call, 0, {}, std::move(inputs), ref, false, log_->position()});
  return ref;
}

void Trace::iterator(PyObject* object, Value iterated) {
  if (!active()) return;
  Node node;
  node.kind = NodeKind::result;
  node.index = -1;  // made when the trace ends, if it lives that long
  Tracked& tracked = track(object, add(std::move(node)), true);
  tracked.iterated = value(iterated.object, iterated.ref);
  tracked.keeps = Object::share(iterated.object);
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
  Tracked& tracked = track(object, add(std::move(node)), true);
  tracked.transient = true;
  const bool is_in_c = (Py_TYPE(object)->tp_flags & Py_TPFLAGS_HEAPTYPE) == 0;
  if (PyIter_Check(object) && is_in_c && !PyGen_CheckExact(object) && PyObject_IS_GC(object))
    tracked.keeps = parts_inside(object);
  transients_.push_back(object);
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
    tracked->iterated = {left.get(), 0};
    tracked->keeps = left;
    ++opened_iterators;
    return true;
  }
  PyObject* over = iterated_by(iterator);
  if (over == nullptr || position_of(iterator) < 0) return false;
  nodes_[ref].length = position_of(iterator);
  guard(ref, kGuardType | kGuardPosition);
  tracked->keeps = Object::share(over);
  const Value container{over, read(NodeKind::iterated, {iterator, ref}, nullptr, 0, over)};
  if (!active()) return false;
  find(iterator)->iterated = value(container.object, container.ref);
  ++opened_iterators;
  return true;
}

}  // namespace smelt::bytecode
