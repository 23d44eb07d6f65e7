#include "capture/bytecode/trace/trace.h"

#include "capture/bytecode/cpython/same_value.h"

namespace smelt::bytecode {

Trace::Trace(PyObject* const* slots, size_t count) : nodes_(1), ambient_(tensors().ambient()) {
  slot_refs_.resize(count);
  for (size_t i = 0; i < count; ++i) {
    if (slots[i] != nullptr)
      slot_refs_[i] = path(NodeKind::slot, 0, nullptr, static_cast<int>(i), slots[i]);
  }
  log_->set_guess([this] {
    constexpr int kMostGuesses = 100;  // at one line
    const bool may = active() && guesses.are_allowed && may_guess_here(kMostGuesses);
    guesses.any = guesses.any || may;
    return may;
  });
  log_->resume();
}

Trace::~Trace() { log_->pause(); }

// -- where objects come from

Tracked* Trace::find(PyObject* object) { return objects_.find(object); }

const Tracked* Trace::find(PyObject* object) const { return objects_.find(object); }

Ref Trace::born_tensor(PyObject* object) const {
  if (!tensors().is_tensor(object)) return 0;
  const LogValue value = log_->value_of(object);
  return value < 0 || static_cast<size_t>(value) >= born_tensors_.size()
             ? 0
             : born_tensors_[static_cast<size_t>(value)];
}

Ref Trace::ref_of(PyObject* object) const {
  if (object == Py_None || Py_TYPE(object) == &PyLong_Type) return 0;  // never tracked
  const Tracked* tracked = find(object);
  return tracked == nullptr ? born_tensor(object) : tracked->ref;
}

bool Trace::is_tracked(PyObject* object) const { return ref_of(object) != 0; }

bool Trace::is_born(PyObject* object) const {
  const Tracked* tracked = find(object);
  return tracked == nullptr ? born_tensor(object) != 0 : tracked->born;
}

Value Trace::value(PyObject* object, Ref ref) const {
  const Ref known = ref_of(object);
  return {object, known != 0 ? known : ref};
}

Ref Trace::slot_ref(int index) const { return slot_refs_[static_cast<size_t>(index)]; }

Ref Trace::add(Node node) {
  nodes_.push_back(std::move(node));
  return static_cast<Ref>(nodes_.size() - 1);
}

Tracked& Trace::track(PyObject* object, Ref ref, bool born) {
  Tracked& tracked = objects_.add(object);
  tracked.object = Object::share(object);
  tracked.ref = ref;
  tracked.born = born;
  tracked.length = length_of(object);
  if (born) let_go.note(object);  // an instruction may make it for itself alone
  return tracked;
}

bool Trace::is_path(Ref ref) const { return ref != 0 && nodes_[ref].kind < NodeKind::scalar; }

Ref Trace::path(NodeKind kind, Ref parent, PyObject* key, int index, PyObject* object) {
  const PathKey id{kind, parent, key, index};
  if (const Ref found = paths_.find(id)) {
    if (nodes_[found].object.get() != object) {
      // A getter in C makes a new one each time: code.co_varnames.
      if (is_constant(object) && !nodes_[found].gone &&
          same_value(object, nodes_[found].object.get())) {
        guard(found, kGuardEqual);
        return found;
      }
      stop(BreakReason::mutation, show(object));
      return 0;
    }
    const Tracked* tracked = find(object);
    return tracked == nullptr ? found : tracked->ref;
  }
  Node node;
  node.kind = kind;
  node.parent = parent;
  node.index = index;
  node.key = Object::share(key);
  node.object = Object::share(object);
  if (Tracked* known = find(object)) {
    const Ref ref = add(std::move(node));
    paths_.set(id, ref);
    if (known->born) {
      stop(BreakReason::mutation, show(object));
      return 0;
    }
    required_.aliases.push_back({known->ref, ref, true});
    ++known->holds;
    return known->ref;
  }
  if (born_tensor(object) != 0) {
    stop(BreakReason::mutation, show(object));
    return 0;
  }
  const bool is_tensor = tensors().is_tensor(object);
  const Ref ref = add(std::move(node));
  std::vector<int> varying;
  if (is_tensor) {
    varying = varying_dims(ref);
    nodes_[ref].tensor = tensors().guard(object, varying);
  }
  paths_.set(id, ref);
  // Even if nothing is done with it: without it there would have been an error, or `in` would have
  // been false.
  if (kind != NodeKind::slot && kind != NodeKind::type) guard(ref, kGuardPresent);
  if (is_constant(object)) {
    if (is_compound(object)) compounds_.emplace(object, ref);
    return ref;
  }
  ++track(object, ref, false).holds;
  if (is_tensor) {
    if (auto trouble = tensors().refuse(object)) {
      find(object)->refusal = std::move(trouble);  // a break where it is used
    } else {
      log_->add_input(object);
      tensor_paths_.push_back(ref);
      if (!varying.empty()) vary(ref, varying);
    }
  }
  return ref;
}

Ref Trace::constant_node(PyObject* object) {
  if (const Tracked* tracked = find(object)) return tracked->ref;
  const PathKey id{NodeKind::constant, 0, object, 0};
  if (const Ref found = paths_.find(id)) return found;
  Node node;
  node.kind = NodeKind::constant;
  node.object = Object::share(object);
  const Ref ref = add(std::move(node));
  paths_.set(id, ref);
  if (!is_constant(object)) ++track(object, ref, false).holds;
  return ref;
}

Ref Trace::parent_ref(Value parent) {
  if (const Ref known = ref_of(parent.object)) return known;
  // A namespace is what it is as long as its function or module is; nothing says so of others.
  if (parent.ref == 0 && !is_constant(parent.object) && !PyDict_CheckExact(parent.object))
    stop(BreakReason::unknown_object, Py_TYPE(parent.object)->tp_name);
  return parent.ref != 0 ? parent.ref : constant_node(parent.object);
}

void Trace::hold(PyObject* object) { held_.push_back(Object::share(object)); }

}  // namespace smelt::bytecode
