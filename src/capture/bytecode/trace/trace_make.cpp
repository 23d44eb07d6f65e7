// Objects that the run makes, and its changes to them and to others: steps.
#include <algorithm>

#include "capture/bytecode/trace/boundary.h"
#include "capture/bytecode/trace/stored_items.h"
#include "capture/bytecode/trace/trace.h"

namespace smelt::bytecode {
// It can't be made again, or only when the segment ends: an iterator.
bool Trace::is_passing(PyObject* object) const {
  const Tracked* tracked = find(object);
  return tracked != nullptr && (tracked->transient || (tracked->born && tracked->iterated.object));
}

Operand Trace::operand(Value v) {
  if (v.object == nullptr) return {};
  v = value(v.object, v.ref);
  if (is_passing(v.object) && PyUnicode_CheckExact(v.object)) use(v);
  if (is_passing(v.object)) stop(BreakReason::iterator, Py_TYPE(v.object)->tp_name);
  if (v.ref != 0) return {v.ref, {}};
  if (!is_constant(v.object)) stop(BreakReason::unknown_object, Py_TYPE(v.object)->tp_name);
  return {0, Object::share(v.object)};
}

// With `lazy`, atoms may stay what they will be in the call; else they are used and become
// constants. A tuple from outside is the one that is there in the call, and not its equal.
std::vector<Operand> Trace::operands(std::span<const Value> values, bool lazy) {
  std::vector<Operand> result;
  result.reserve(values.size());
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
      kind == StepKind::build_tuple || kind == StepKind::build_list ||
      kind == StepKind::build_map || kind == StepKind::build_size ||
      (kind == StepKind::build_slice && sizes.any());
  if (!keeps_elements(kind)) settle_inside(inputs);
  std::vector<Operand> prepared =
      has_elements ? elements(kind, inputs, lazy) : operands(inputs, is_cell);
  if (has_finaliser(object)) stop(BreakReason::unknown_object, Py_TYPE(object)->tp_name);
  if (!active() || is_shared(object)) return 0;
  Node node;
  node.kind = NodeKind::result;
  node.index = static_cast<int32_t>(steps_.size());
  const Ref ref = add(std::move(node));
  steps_.push_back(
      {kind, arg, Object::share(names), std::move(prepared), ref, false, log_->position()});
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
  store(dict.overlay, key.object, ref);
}

bool Trace::keeps_elements_apart(PyObject* list) const {
  const Tracked* tracked = find(list);
  return PyList_CheckExact(list) && tracked != nullptr && !tracked->born && !tracked->known &&
         tracked->length == PyList_GET_SIZE(list);
}

// A field of an object from outside (__slots__) is what was written from now on.
void Trace::note_field_change(Tracked& object, PyObject* name, Ref ref) {
  store(object.overlay, name, ref);
}

void Trace::effect(StepKind kind, std::span<const Value> inputs, int arg, PyObject* names) {
  if (!active()) return;
  const Value target = inputs[0];
  note_replaced(kind, inputs);
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
    note_act();
    return;
  }
  if (!keeps_elements(kind)) settle_inside(inputs);
  const bool appends = kind == StepKind::list_append && is_lazy_number(inputs[1]);
  const bool fills = kind == StepKind::set_item && keeps_values_apart(target.object, inputs[1]);
  if (Tracked* container = find(changed.object);
      container != nullptr && kind != StepKind::list_append && !fills)
    settle_elements(*container);
  const bool puts = appends || (fills && is_lazy_number(inputs[2]));
  std::vector<Operand> prepared = operands(inputs, lazy || puts);
  if (!active()) return;
  if (appends) append_lazy(*tracked, inputs[1].ref);
  if (fills) put_lazy(*find(target.object), inputs[1].object, puts ? inputs[2].ref : 0);
  if (lazy && prepared.size() > 1) note_changing(prepared.back().ref);
  if (Tracked* dict = find(changed.object);
      dict != nullptr && (kind == StepKind::del_item || kind == StepKind::call))
    dict->shrunk = true;
  tracked = find(target.object);
  if (is_store && tracked != nullptr && PyDict_Check(target.object)) {
    const Ref ref = kind == StepKind::set_item ? prepared[2].ref : 0;
    note_dict_change(*tracked, inputs[1], ref);
  }
  if (kind == StepKind::set_item && tracked != nullptr && keeps_elements_apart(target.object))
    store(tracked->overlay, inputs[1].object, prepared[2].ref);
  if (kind == StepKind::set_attr && tracked != nullptr && !tracked->born)
    note_field_change(*tracked, inputs[1].object, prepared[2].ref);
  if (kind == StepKind::set_cell) {
    tracked->cell_written = true;
    tracked->cell_ref = prepared[1].ref;
  }
  steps_.push_back(
      {kind, arg, Object::share(names), std::move(prepared), 0, true, log_->position()});
  note_act();
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
    nodes_[ref].keys = elements_of(object);
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

}  // namespace smelt::bytecode
