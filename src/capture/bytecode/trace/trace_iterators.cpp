// Iterators that are alive where a trace may end, and can be made again there.
#include "capture/bytecode/trace/trace_lifetimes.h"

#include <algorithm>

#include "capture/bytecode/cpython/iterators.h"

namespace smelt::bytecode {
// How the trace knows what a generator was called with, which by itself says nothing of numbers and
// the like. In the order of IteratorParts::arguments.
std::vector<Ref> TraceLifetimes::refs_of_arguments(PyObject* iterator) const {
  const auto found = generators.find(iterator);
  if (found == generators.end()) return {};
  const Generator& known = found->second;
  std::vector<Ref> refs{known.function};  // which may be another one of the same code
  refs.insert(refs.end(), known.slots.begin(), known.slots.end());
  return refs;
}

// Whether it can be made again as it is now. A constant that it goes over is held, as it may be
// dropped before the trace ends.
bool TraceLifetimes::describe(PyObject* iterator, Remade& how, std::vector<Object>& held) const {
  const std::optional<IteratorParts> parts = parts_of(iterator);
  if (!parts) return false;
  how.type = Object::share(reinterpret_cast<PyObject*>(Py_TYPE(iterator)));
  if (!parts->over) {
    const std::vector<Ref> refs = refs_of_arguments(iterator);
    how.arguments.resize(parts->arguments.size());
    for (size_t i = 0; i < parts->arguments.size(); ++i) {
      const Value argument{parts->arguments[i].get(), i < refs.size() ? refs[i] : 0};
      if (!describe_argument(argument, how.arguments[i], held)) return false;
    }
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

bool TraceLifetimes::describe_argument(Value given, Remade& how, std::vector<Object>& held) const {
  PyObject* argument = given.object;
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
  how.over = value(argument, given.ref);
  if (how.over.ref == 0) held.push_back(Object::share(argument));
  return !is_passing(argument) && (how.over.ref != 0 || is_constant(argument));
}

// The step, and those for what it goes over, which may be gone by now.
Ref TraceLifetimes::remake(const Remade& how) {
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

void TraceLifetimes::iterator(PyObject* object, Value iterated) {
  if (!active()) return;
  Node node;
  node.kind = NodeKind::result;
  node.index = -1;  // made when the trace ends, if it lives that long
  Tracked& tracked = track(object, add(std::move(node)), true);
  tracked.iterated = value(iterated.object, iterated.ref);
  tracked.keeps = Object::share(iterated.object);
}

bool TraceLifetimes::iterated(PyObject* iterator, Value* over, int* position) const {
  const Tracked* tracked = find(iterator);
  if (tracked == nullptr || tracked->iterated.object == nullptr) return false;
  *over = tracked->iterated;
  *position = static_cast<int>(position_of(iterator));
  return true;
}

bool TraceLifetimes::open_iterator(PyObject* iterator) {
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
