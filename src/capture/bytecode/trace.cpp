#include "capture/bytecode/trace.h"

#include <algorithm>

#include "base/error.h"
#include "capture/bytecode/constants.h"
#include "capture/bytecode/iterators.h"
#include "capture/bytecode/operations.h"
#include "capture/bytecode/replay.h"
#include "capture/bytecode/same_value.h"

namespace smelt::bytecode {
namespace {

constexpr int kMaxUseDepth = 32;

// A __del__ of the user's, which runs at a time of its own.
bool has_finaliser(PyObject* object) {
  const PyTypeObject* type = Py_TYPE(object);
  return type->tp_finalize != nullptr && (type->tp_flags & Py_TPFLAGS_HEAPTYPE) &&
         !(type->tp_flags & Py_TPFLAGS_IMMUTABLETYPE);
}

// A class written in Python, with nothing in it but its attributes.
bool is_plain_instance(PyObject* object) {
  // Types in C may be on the heap too (array.array); those made by a class statement share this.
  static const destructor python_dealloc = [] {
    Object made = Object::steal(
        PyObject_CallFunction(reinterpret_cast<PyObject*>(&PyType_Type), "s(){}", "plain"));
    return reinterpret_cast<PyTypeObject*>(made.get())->tp_dealloc;
  }();
  for (const PyTypeObject* type = Py_TYPE(object); type != &PyBaseObject_Type; type = type->tp_base)
    if (type == nullptr || type->tp_dealloc != python_dealloc || type->tp_methods != nullptr)
      return false;
  return true;
}

int64_t length_of(PyObject* object) {
  if (PyList_Check(object) || PyTuple_Check(object)) return Py_SIZE(object);
  if (PyDict_Check(object)) return PyDict_GET_SIZE(object);
  if (PyAnySet_Check(object)) return PySet_GET_SIZE(object);
  return -1;
}

// The trace's own books, by key. A key's __hash__ was followed when the program looked it up.
PyObject* find_in_books(Trace* trace, const Object& books, PyObject* key) {
  if (!books) return nullptr;
  const Unfollowed unfollowed(trace, false);
  PyObject* found = PyDict_GetItemWithError(books.get(), key);
  PyErr_Clear();
  return found;
}

void write_in_books(Trace* trace, Object& books, PyObject* key, Ref ref) {
  if (!books) books = Object::steal(PyDict_New());
  const Object written = Object::steal(PyLong_FromLong(static_cast<long>(ref)));
  const Unfollowed unfollowed(trace, false);
  if (PyDict_SetItem(books.get(), key, written.get()) < 0) PyErr_Clear();
}

Object keys_of(PyObject* dict) {
  Object list = Object::steal(PyDict_Keys(dict));
  return Object::steal(PyList_AsTuple(list.get()));
}

}  // namespace

size_t Trace::PathHash::operator()(const PathKey& key) const {
  size_t hash = std::hash<void*>()(key.key);
  hash = hash * 31 + key.parent;
  hash = hash * 31 + static_cast<size_t>(key.index);
  return hash * 31 + static_cast<size_t>(key.kind);
}

Trace::Trace(PyObject* const* slots, size_t count)
    : nodes_(1), ambient_(tensors().ambient()), log_(tensors().start_log()) {
  slot_refs_.resize(count);
  for (size_t i = 0; i < count; ++i) {
    if (slots[i] != nullptr)
      slot_refs_[i] = path(NodeKind::slot, 0, nullptr, static_cast<int>(i), slots[i]);
  }
  log_->resume();
}

Trace::~Trace() { log_->pause(); }

// -- stopping

void Trace::stop(BreakReason reason, std::string detail) {
  if (break_) return;
  log_->pause();
  break_.emplace();
  break_->reason = reason;
  break_->detail = std::move(detail);
  if (locate) {
    const SavedError error;
    locate(*break_);
  }
}

void Trace::check_log(bool thorough) {
  if (!active()) return;
  if (auto trouble = log_->take_trouble(thorough)) stop(trouble->reason, trouble->detail);
}

Trace::Position Trace::position() const {
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

// -- where objects come from

Trace::Tracked* Trace::find(PyObject* object) {
  const auto found = objects_.find(object);
  return found == objects_.end() ? nullptr : &found->second;
}

const Trace::Tracked* Trace::find(PyObject* object) const {
  const auto found = objects_.find(object);
  return found == objects_.end() ? nullptr : &found->second;
}

Ref Trace::born_tensor(PyObject* object) const {
  if (!tensors().is_tensor(object)) return 0;
  const auto found = born_tensors_.find(log_->value_of(object));
  return found == born_tensors_.end() ? 0 : found->second;
}

Ref Trace::ref_of(PyObject* object) const {
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

Trace::Tracked& Trace::track(PyObject* object, Ref ref, bool born) {
  Tracked& tracked = objects_[object];
  tracked.object = Object::share(object);
  tracked.ref = ref;
  tracked.born = born;
  tracked.length = length_of(object);
  return tracked;
}

bool Trace::is_path(Ref ref) const { return ref != 0 && nodes_[ref].kind < NodeKind::scalar; }

Ref Trace::path(NodeKind kind, Ref parent, PyObject* key, int index, PyObject* object) {
  const PathKey id{kind, parent, key, index};
  if (const auto found = paths_.find(id); found != paths_.end()) {
    if (nodes_[found->second].object.get() != object) {
      // A getter in C makes a new one each time: code.co_varnames.
      if (is_constant(object) && same_value(object, nodes_[found->second].object.get())) {
        guard(found->second, kGuardEqual);
        return found->second;
      }
      stop(BreakReason::mutation, show(object));
      return 0;
    }
    const Tracked* tracked = find(object);
    return tracked == nullptr ? found->second : tracked->ref;
  }
  Node node;
  node.kind = kind;
  node.parent = parent;
  node.index = index;
  node.key = Object::share(key);
  node.object = Object::share(object);
  if (Tracked* known = find(object)) {
    const Ref ref = add(std::move(node));
    paths_.emplace(id, ref);
    if (known->born) {
      stop(BreakReason::mutation, show(object));
      return 0;
    }
    aliases_.push_back({known->ref, ref, true});
    return known->ref;
  }
  if (born_tensor(object) != 0) {
    stop(BreakReason::mutation, show(object));
    return 0;
  }
  const bool is_tensor = tensors().is_tensor(object);
  if (is_tensor) node.tensor = tensors().guard(object);
  const Ref ref = add(std::move(node));
  paths_.emplace(id, ref);
  // Even if nothing is done with it: without it there would have been an error, or `in` would have
  // been false.
  if (kind != NodeKind::slot && kind != NodeKind::type) guard(ref, kGuardPresent);
  if (is_constant(object)) {
    if (is_compound(object)) compounds_.emplace(object, ref);
    return ref;
  }
  track(object, ref, false);
  if (is_tensor) {
    if (auto trouble = tensors().refuse(object)) {
      find(object)->refusal = std::move(trouble);  // a break where it is used
    } else {
      log_->add_input(object);
      tensor_paths_.push_back(ref);
    }
  }
  return ref;
}

Ref Trace::constant_node(PyObject* object) {
  if (const Tracked* tracked = find(object)) return tracked->ref;
  const PathKey id{NodeKind::constant, 0, object, 0};
  if (const auto found = paths_.find(id); found != paths_.end()) return found->second;
  Node node;
  node.kind = NodeKind::constant;
  node.object = Object::share(object);
  const Ref ref = add(std::move(node));
  paths_.emplace(id, ref);
  if (!is_constant(object)) track(object, ref, false);
  return ref;
}

Ref Trace::parent_ref(Value parent) {
  if (const Ref known = ref_of(parent.object)) return known;
  return parent.ref != 0 ? parent.ref : constant_node(parent.object);
}

// -- reading

// The ref of something found in an object whose contents are known.
Ref Trace::element_ref(PyObject* object) {
  if (const Ref known = ref_of(object)) return known;
  if (!is_constant(object)) stop(BreakReason::unknown_object, Py_TYPE(object)->tp_name);
  const auto found = compounds_.find(object);
  return found == compounds_.end() ? 0 : found->second;
}

Ref Trace::read_dict(Value dict, PyObject* key, PyObject* object) {
  if (!active()) return 0;
  const Ref parent = parent_ref(dict);
  Tracked* tracked = find(dict.object);
  if (const Ref lazy = lazy_value(*tracked, key)) return lazy;
  if (tracked->born || tracked->known) return element_ref(object);
  if (PyObject* written = find_in_books(this, tracked->overlay, key)) {
    const Ref ref = static_cast<Ref>(PyLong_AsLong(written));
    return ref == 0 ? element_ref(object) : ref;
  }
  if (is_path(parent)) guard(parent, kGuardType);
  return path(NodeKind::dict_item, parent, key, 0, object);
}

void Trace::read_absent(Value dict, PyObject* key) {
  if (!active()) return;
  const Ref parent = parent_ref(dict);
  const Tracked* tracked = find(dict.object);
  if (tracked->born || tracked->known) return;
  if (find_in_books(this, tracked->overlay, key) != nullptr) return;
  if (is_path(parent)) guard(parent, kGuardType);
  absent_.push_back({parent, Object::share(key)});
}

Ref Trace::read_item(Value sequence, Py_ssize_t index, PyObject* object) {
  if (!active()) return 0;
  const Tracked* tracked = find(sequence.object);
  if (tracked == nullptr && sequence.ref == 0) return element_ref(object);
  if (tracked != nullptr) {
    if (const Ref lazy = tracked->lazy.item(index)) return lazy;
    if (tracked->born || tracked->known || index >= tracked->length) return element_ref(object);
    sequence.ref = tracked->ref;
  }
  guard(sequence.ref, kGuardType | kGuardLength);
  return path(NodeKind::item, sequence.ref, nullptr, static_cast<int>(index), object);
}

Ref Trace::read_cell(Value cell, PyObject* object) {
  if (!active()) return 0;
  const Ref parent = parent_ref(cell);
  const Tracked* tracked = find(cell.object);
  if (tracked->cell_written) return value(object, tracked->cell_ref).ref;
  return path(NodeKind::cell, parent, nullptr, 0, object);
}

Ref Trace::read(NodeKind kind, Value parent, PyObject* key, int index, PyObject* object) {
  if (!active()) return 0;
  if (is_born(parent.object)) return element_ref(object);
  const Ref ref = parent_ref(parent);
  if (is_path(ref) && kind != NodeKind::type && !tensors().is_tensor(parent.object))
    guard(ref, kGuardType);
  if (const Tracked* tracked = find(parent.object);
      tracked != nullptr && kind == NodeKind::attribute) {
    if (PyObject* written = find_in_books(this, tracked->overlay, key)) {
      const Ref stored = static_cast<Ref>(PyLong_AsLong(written));
      return stored == 0 ? element_ref(object) : stored;
    }
  }
  return path(kind, ref, key, index, object);
}

Ref Trace::read_type(PyTypeObject* type, PyObject* name, PyObject* found) {
  if (!active()) return 0;
  auto* object = reinterpret_cast<PyObject*>(type);
  lookups_.push_back({Object::share(object), Object::share(name), Object::share(found)});
  if (found == nullptr) return 0;
  return path(NodeKind::type_attribute, constant_node(object), name, 0, found);
}

// -- guards

void Trace::guard(Ref ref, uint16_t bits, bool truth) {
  if (ref == 0 || !active()) return;
  const NodeKind kind = nodes_[ref].kind;
  if (kind == NodeKind::tensor || kind == NodeKind::result || kind == NodeKind::constant) return;
  guards_.push_back({ref, bits, truth});
}

void Trace::guard_type(Value v) { guard(value(v.object, v.ref).ref, kGuardType); }
void Trace::guard_same(Value v) { guard(value(v.object, v.ref).ref, kGuardSame); }

void Trace::guard_length(Value v) {
  if (!active()) return;
  const Tracked* tracked = find(v.object);
  if (tracked != nullptr && (tracked->born || tracked->known)) return;
  const Ref ref = value(v.object, v.ref).ref;
  if (PyDict_Check(v.object) && tracked != nullptr && tracked->keys_before) {
    guard_keys(v);
    return;
  }
  if (is_path(ref)) guard(ref, kGuardType | kGuardLength);
}

void Trace::guard_keys(Value v) {
  if (!active()) return;
  const Ref ref = parent_ref(v);
  const Tracked* tracked = find(v.object);
  if (tracked->born || tracked->known) return;
  Node& node = nodes_[ref];
  if (!node.keys) node.keys = tracked->keys_before ? tracked->keys_before : keys_of(v.object);
  guards_.push_back({ref, kGuardType | kGuardKeys, false});
}

void Trace::guard_truth(Value v, bool truth) {
  if (!active()) return;
  const Ref ref = value(v.object, v.ref).ref;
  if (ref == 0) return;
  if (is_singleton(v.object)) {
    guard(ref, nodes_[ref].kind == NodeKind::scalar ? kGuardTruth : kGuardSame, truth);
  } else if (is_atom(v.object)) {
    guard(ref, kGuardType | kGuardTruth, truth);
  } else if (length_of(v.object) >= 0) {
    const Tracked* tracked = find(v.object);
    if (tracked != nullptr && (tracked->length != length_of(v.object) || tracked->keys_before))
      guard_length(v);
    else if (tracked == nullptr || !(tracked->born || tracked->known))
      guard(ref, kGuardType | kGuardTruth, truth);
  } else {
    guard(ref, kGuardType);
  }
}

void Trace::guard_function(Value v) {
  if (!active() || is_born(v.object)) return;
  guard(value(v.object, v.ref).ref, kGuardFunction);
}

void Trace::guard_alias(Value a, Value b, bool same) {
  if (!active()) return;
  const Ref first = value(a.object, a.ref).ref, second = value(b.object, b.ref).ref;
  if (is_path(first) && is_path(second) && first != second)
    aliases_.push_back({first, second, same});
}

void Trace::use(Value v) {
  if (!active()) return;
  v = value(v.object, v.ref);
  if (v.ref == 0) {
    if (!is_constant(v.object)) stop(BreakReason::unknown_object, Py_TYPE(v.object)->tp_name);
    return;
  }
  switch (nodes_[v.ref].kind) {
    case NodeKind::tensor:
      if (log_->is_dynamic(nodes_[v.ref].index))
        stop(BreakReason::data_dependent, "the shape of the result of an op");
      return;
    case NodeKind::constant: return;
    case NodeKind::scalar: guard(v.ref, kGuardEqual); return;
    case NodeKind::result: use_elements(v); return;
    default: use_outside(v);
  }
}

void Trace::use_outside(Value v) {
  PyObject* object = v.object;
  if (tensors().is_tensor(object)) {
    const Tracked* tracked = find(object);
    if (tracked != nullptr && tracked->refusal)
      stop(tracked->refusal->reason, tracked->refusal->detail);
    guard(v.ref, kGuardTensor);
  } else if (is_singleton(object) || is_fixed(object)) {
    guard(v.ref, kGuardSame);
  } else if (is_constant(object)) {
    guard(v.ref, kGuardEqual);
  } else if (PyTuple_Check(object) || PyList_Check(object) || PyDict_Check(object) ||
             PyAnySet_Check(object)) {
    use_elements(v);
  } else if (PyMethod_Check(object)) {
    guard(v.ref, kGuardType);
    use({PyMethod_GET_FUNCTION(object),
         read(NodeKind::method_function, v, nullptr, 0, PyMethod_GET_FUNCTION(object))});
    use({PyMethod_GET_SELF(object),
         read(NodeKind::method_self, v, nullptr, 0, PyMethod_GET_SELF(object))});
  } else if (is_plain_instance(object)) {
    guard(v.ref, kGuardSame);
  } else if (PyCell_Check(object)) {
    guard(v.ref, kGuardSame);
  } else {
    stop(BreakReason::unknown_object, Py_TYPE(object)->tp_name);
  }
}

// All elements of a container are used; for other objects that the trace made there is nothing to
// compare.
void Trace::use_elements(Value v) {
  if (use_depth_ >= kMaxUseDepth) {
    stop(BreakReason::too_long, "32 containers in each other");
    return;
  }
  ++use_depth_;
  PyObject* object = v.object;
  if (PyTuple_Check(object) || PyList_Check(object)) {
    guard(v.ref, kGuardType);
    guard_length(v);
    for (Py_ssize_t i = 0; i < Py_SIZE(object) && active(); ++i) {
      PyObject* item =
          PyTuple_Check(object) ? PyTuple_GET_ITEM(object, i) : PyList_GET_ITEM(object, i);
      use({item, read_item(v, i, item)});
    }
  } else if (PyDict_Check(object)) {
    guard_keys(v);
    PyObject *key, *item;
    Py_ssize_t at = 0;
    while (active() && PyDict_Next(object, &at, &key, &item)) use({item, read_dict(v, key, item)});
  } else if (PyAnySet_Check(object)) {
    own(v);
  }
  --use_depth_;
}

// -- making and changing

// It can't be made again, or only when the segment ends: an iterator.
bool Trace::is_passing(PyObject* object) const {
  const Tracked* tracked = find(object);
  return tracked != nullptr && (tracked->transient || (tracked->born && tracked->iterated.object));
}

Operand Trace::operand(Value v) {
  if (v.object == nullptr) return {};
  v = value(v.object, v.ref);
  if (is_passing(v.object)) stop(BreakReason::iterator, Py_TYPE(v.object)->tp_name);
  if (v.ref != 0) return {v.ref, {}};
  if (!is_constant(v.object)) stop(BreakReason::unknown_object, Py_TYPE(v.object)->tp_name);
  return {0, Object::share(v.object)};
}

// With `lazy`, atoms may stay what they will be in the call; else they are used and become
// constants. A tuple from outside is the one that is there in the call, and not its equal.
std::vector<Operand> Trace::operands(std::span<const Value> values, bool lazy) {
  std::vector<Operand> result;
  for (Value v : values) {
    if (v.object != nullptr && !lazy && is_constant(v.object) && !is_tracked(v.object)) {
      use(v);
      if (!is_path(v.ref) || !is_compound(v.object)) v.ref = 0;
    }
    result.push_back(operand(v));
  }
  return result;
}

// True if one of them can't be made again; the others are settled then.
bool Trace::settle_around_transient(std::span<const Value> values) {
  const bool found = std::ranges::any_of(
      values, [&](const Value& v) { return v.object != nullptr && is_passing(v.object); });
  if (!found) return false;
  for (const Value& v : values)
    if (v.object != nullptr && is_constant(v.object) && !is_tracked(v.object)) use(v);
  return true;
}

Ref Trace::make(StepKind kind, std::span<const Value> inputs, PyObject* object, int arg,
                PyObject* names) {
  if (!active()) return 0;
  const bool is_cell = kind == StepKind::new_cell;
  if (settle_around_transient(inputs)) {  // what has one in it can't be made again either
    transient(object);
    if (is_cell) {
      find(object)->cell_written = true;
      find(object)->cell_ref = inputs[0].ref;
    }
    return ref_of(object);
  }
  LazyElements lazy;
  const bool has_elements =
      kind == StepKind::build_tuple || kind == StepKind::build_list || kind == StepKind::build_map;
  if (!keeps_elements(kind)) settle_inside(inputs);
  std::vector<Operand> prepared =
      has_elements ? elements(kind, inputs, lazy) : operands(inputs, is_cell);
  if (has_finaliser(object)) stop(BreakReason::unknown_object, Py_TYPE(object)->tp_name);
  if (!active() || is_shared(object)) return 0;
  Node node;
  node.kind = NodeKind::result;
  node.index = static_cast<int32_t>(steps_.size());
  const Ref ref = add(std::move(node));
  steps_.push_back({kind, arg, Object::share(names), std::move(prepared), ref, false});
  Tracked& tracked = track(object, ref, true);
  tracked.lazy = std::move(lazy);
  if (is_cell) {
    tracked.cell_written = true;
    tracked.cell_ref = inputs[0].object == nullptr ? 0 : inputs[0].ref;
  }
  return ref;
}

void Trace::note_dict_change(Tracked& dict, Value key, Ref ref) {
  if (dict.born || dict.known) return;
  if (!dict.keys_before) dict.keys_before = keys_of(dict.object.get());
  write_in_books(this, dict.overlay, key.object, ref);
}

// A field of an object from outside (__slots__) is what was written from now on.
void Trace::note_field_change(Tracked& object, PyObject* name, Ref ref) {
  write_in_books(this, object.overlay, name, ref);
}

void Trace::effect(StepKind kind, std::span<const Value> inputs, int arg, PyObject* names) {
  if (!active()) return;
  const Value target = inputs[0];
  if (kind != StepKind::call) parent_ref(target);
  Tracked* tracked = find(target.object);
  const bool lazy = tracked != nullptr && (!tracked->born || kind == StepKind::set_cell);
  const bool is_store = kind == StepKind::set_item || kind == StepKind::del_item;
  if (is_store) use(inputs[1]);
  const Value changed = inputs[kind == StepKind::call && inputs.size() > 1 ? 1 : 0];
  if (is_born(changed.object) && settle_around_transient(inputs)) {
    transient(changed.object);
    if (kind == StepKind::set_cell) {
      tracked->cell_written = true;
      tracked->cell_ref = inputs[1].ref;
    }
    return;
  }
  if (!keeps_elements(kind)) settle_inside(inputs);
  const bool appends = kind == StepKind::list_append && is_lazy_number(inputs[1]);
  if (Tracked* container = find(changed.object);
      container != nullptr && kind != StepKind::list_append)
    settle_elements(*container);
  std::vector<Operand> prepared = operands(inputs, lazy || appends);
  if (!active()) return;
  if (appends) append_lazy(*tracked, inputs[1].ref);
  if (lazy && prepared.size() > 1) note_changing(prepared.back().ref);
  if (Tracked* dict = find(changed.object);
      dict != nullptr && (kind == StepKind::del_item || kind == StepKind::call))
    dict->shrunk = true;
  tracked = find(target.object);
  if (is_store && tracked != nullptr && PyDict_Check(target.object)) {
    const Ref ref = kind == StepKind::set_item ? prepared[2].ref : 0;
    note_dict_change(*tracked, inputs[1], ref);
  }
  if (kind == StepKind::set_attr && tracked != nullptr && !tracked->born)
    note_field_change(*tracked, inputs[1].object, prepared[2].ref);
  if (kind == StepKind::set_cell) {
    tracked->cell_written = true;
    tracked->cell_ref = prepared[1].ref;
  }
  steps_.push_back({kind, arg, Object::share(names), std::move(prepared), 0, true});
}

void Trace::effect_call(std::span<const Value> callee_and_arguments, PyObject* names) {
  effect(StepKind::call, callee_and_arguments, 0, names);
}

Ref Trace::make_by_effect(std::span<const Value> callee_and_arguments, PyObject* object) {
  const Ref ref = make(StepKind::call, callee_and_arguments, object);
  if (ref != 0) steps_.back().effect = true;
  return ref;
}

void Trace::own(Value container) {
  if (!active()) return;
  const Ref ref = parent_ref(container);
  Tracked* tracked = find(container.object);
  if (tracked != nullptr) settle_elements(*tracked);
  if (tracked == nullptr || tracked->born || tracked->known) return;
  PyObject* object = container.object;
  if (PyList_Check(object)) {
    use_elements(container);
  } else if (PyAnySet_Check(object)) {
    if (!is_constant_set(object)) {
      stop(BreakReason::mutation, "a set of objects");
      return;
    }
    nodes_[ref].keys = Object::steal(PyFrozenSet_New(object));
    guard(ref, kGuardType | kGuardSet);
  } else if (PyDict_Check(object)) {
    use_elements(container);
  } else {
    stop(BreakReason::mutation, Py_TYPE(object)->tp_name);
    return;
  }
  tracked = find(container.object);  // the table may have grown
  tracked->known = true;
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

// One that nobody else has was made just now, and each call makes its own.
Ref Trace::adopt_constant(PyObject* object, int holders) {
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

Ref Trace::adopt(PyObject* object, int holders) {
  if (!active()) return 0;
  if (const Ref known = ref_of(object)) return known;
  if (is_constant(object)) return adopt_constant(object, holders);
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
  } else if (PySet_CheckExact(object) && is_constant_set(object)) {
    kind = StepKind::build_set;
    Py_ssize_t at = 0;
    PyObject* item;
    Py_hash_t hash;
    while (_PySet_NextEntry(object, &at, &item, &hash)) items.push_back({item, 0});
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

Ref Trace::tensor(PyObject* object) {
  if (!active()) return 0;
  if (const Ref ref = ref_of(object)) return ref;
  const LogValue known = log_->value_of(object);
  if (known < 0) {
    stop(BreakReason::foreign_tensor, "the result of a C function");
    return 0;
  }
  if (auto trouble = tensors().refuse(object)) {
    stop(trouble->reason, trouble->detail);
    return 0;
  }
  Node node;
  node.kind = NodeKind::tensor;
  node.index = known;
  const Ref ref = add(std::move(node));
  born_tensors_.emplace(known, ref);
  return ref;
}

void Trace::hold(PyObject* object) { held_.push_back(Object::share(object)); }

}  // namespace smelt::bytecode
