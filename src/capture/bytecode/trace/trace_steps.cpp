#include "capture/bytecode/trace/trace_steps.h"

#include <algorithm>

#include "capture/bytecode/nodes/lazy_elements.h"
#include "capture/bytecode/trace/boundary.h"
#include "capture/bytecode/trace/stored_items.h"

namespace smelt::bytecode {
namespace {

// Keys that are compared without running any code of the user's, and that equal no others.
bool has_plain_keys(std::span<const Value> keys_and_values) {
  for (size_t i = 0; i < keys_and_values.size(); i += 2)
    if (!PyUnicode_CheckExact(keys_and_values[i].object)) return false;
  return true;
}

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

// tuple.__new__(cls, items), as a namedtuple is made.
bool is_made_of_tuple(StepKind kind, std::span<const Value> inputs) {
  if (kind != StepKind::call || inputs.size() != 3 || !PyTuple_CheckExact(inputs[2].object) ||
      !PyCFunction_Check(inputs[0].object))
    return false;
  return PyCFunction_GET_SELF(inputs[0].object) == reinterpret_cast<PyObject*>(&PyTuple_Type) &&
         std::string_view(reinterpret_cast<PyCFunctionObject*>(inputs[0].object)->m_ml->ml_name) ==
             "__new__";
}

// A store under a name is seen by those who read it, as long as nobody has the object's __dict__.
bool keeps_fields_apart(PyObject* object, const TraceObjects& trace) {
  if (!trace.is_born(object) || !may_have_lazy_fields(object)) return false;
  PyObject** dict = _PyObject_GetDictPtr(object);
  return dict == nullptr || *dict == nullptr || !trace.is_tracked(*dict);
}

}  // namespace

Operand TraceSteps::operand(Value v) {
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
std::vector<Operand> TraceSteps::operands(std::span<const Value> values, bool lazy) {
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

std::vector<Operand> TraceSteps::elements(StepKind kind, std::span<const Value> values,
                                          LazyElements& lazy) {
  const bool is_map = kind == StepKind::build_map;
  if (is_map && !has_plain_keys(values)) return operands(values, false);
  std::vector<Operand> result;
  for (size_t i = 0; i < values.size(); ++i) {
    const Value v = values[i];
    const bool is_key = is_map && i % 2 == 0;
    const bool is_lazy = !is_key && is_lazy_number(v);
    if (is_lazy) {
      guard(v.ref, kGuardType);
      result.push_back(operand(v));
      ++lazy_elements_;
    } else {
      result.push_back(operands(values.subspan(i, 1), false)[0]);
    }
    if (is_map && !is_key)
      lazy.set_value(values[i - 1].object, is_lazy ? v.ref : 0);
    else if (is_lazy)
      lazy.add_item(static_cast<Py_ssize_t>(i), v.ref);
  }
  return result;
}

void TraceSteps::append_lazy(Tracked& list, Ref number) {
  guard(number, kGuardType);
  list.lazy.add_item(PyList_GET_SIZE(list.object.get()), number);
  ++lazy_elements_;
}

void TraceSteps::set_lazy(Tracked& list, Py_ssize_t place, Ref number) {
  if (number != 0) {
    guard(number, kGuardType);
    ++lazy_elements_;
  }
  list.lazy.set_item(place, number);
}

void TraceSteps::put_lazy(Tracked& dict, PyObject* key, Ref number) {
  if (number != 0) {
    guard(number, kGuardType);
    ++lazy_elements_;
  }
  dict.lazy.set_value(key, number);
}

// A store under the key is seen by no reader of another one. In an object's __dict__ it would be
// seen by those of the object's attributes, who do not ask the dict.
bool TraceSteps::keeps_values_apart(PyObject* dict, Value key) const {
  const Tracked* tracked = find(dict);
  if (tracked == nullptr || !tracked->born || !PyDict_CheckExact(dict) ||
      !PyUnicode_CheckExact(key.object))
    return false;
  const Node& node = nodes_[tracked->ref];
  return node.kind != NodeKind::result ||
         steps_[static_cast<size_t>(node.index)].kind != StepKind::instance_dict;
}

// Of one element of a list that the trace made, while the others stay what they are; else -1.
Py_ssize_t TraceSteps::place_in_made_list(PyObject* list, Value key) const {
  const Tracked* tracked = find(list);
  if (tracked == nullptr || !tracked->born || !PyList_CheckExact(list) ||
      !PyLong_CheckExact(key.object))
    return -1;
  const Py_ssize_t place = PyLong_AsSsize_t(key.object);
  PyErr_Clear();
  return place < PyList_GET_SIZE(list) ? place : -1;
}

// True if one of them can't be made again; the others are settled then.
bool TraceSteps::settle_around_transient(std::span<const Value> values) {
  const bool found = std::ranges::any_of(
      values, [&](const Value& v) { return v.object != nullptr && is_passing(v.object); });
  if (!found) return false;
  for (const Value& v : values)
    if (v.object != nullptr && is_constant(v.object) && !is_tracked(v.object)) use(v);
  return true;
}

void TraceSteps::transient(PyObject* object) {
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

Ref TraceSteps::make(StepKind kind, std::span<const Value> inputs, PyObject* object, int arg,
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
  const bool has_elements = kind == StepKind::build_tuple || kind == StepKind::build_list ||
                            kind == StepKind::build_map || kind == StepKind::build_size ||
                            (kind == StepKind::build_slice && sizes.any());
  if (is_made_of_tuple(kind, inputs)) {
    if (const Tracked* items = find(inputs[2].object); items != nullptr && !items->lazy.empty())
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(inputs[2].object); ++i)
        if (const Ref item = items->lazy.item(i)) lazy.add_item(i, item);
  } else if (!keeps_elements(kind)) {
    settle_inside(inputs);
  }
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

void TraceSteps::note_dict_change(Tracked& dict, Value key, Ref ref) {
  if (dict.born || dict.known) return;
  if (!dict.keys_before) dict.keys_before = keys_of(dict.object.get());
  store(dict.overlay, key.object, ref);
}

bool TraceSteps::keeps_elements_apart(PyObject* list) const {
  const Tracked* tracked = find(list);
  return PyList_CheckExact(list) && tracked != nullptr && !tracked->born && !tracked->known &&
         tracked->length == PyList_GET_SIZE(list);
}

// A field of an object from outside (__slots__) is what was written from now on.
void TraceSteps::note_field_change(Tracked& object, PyObject* name, Ref ref) {
  store(object.overlay, name, ref);
}

// A store that a cached call leaves out, of an object that can't be made again, or the one that puts
// back what was there before it.
bool TraceSteps::passes(StepKind kind, std::span<const Value> inputs) {
  const bool is_store = kind == StepKind::set_item;
  if ((!is_store && kind != StepKind::del_item) || !PyDict_CheckExact(inputs[0].object) ||
      !PyUnicode_CheckExact(inputs[1].object) || is_born(inputs[0].object))
    return false;
  PyObject *dict = inputs[0].object, *key = inputs[1].object;
  const auto known = std::ranges::find_if(passing_stores_, [&](const PassingStore& store) {
    return store.dict.get() == dict && PyUnicode_Compare(store.key.get(), key) == 0;
  });
  const bool is_passing_value = is_store && tensors().is_wrapped(inputs[2].object);
  Tracked* tracked = find(dict);
  if (is_passing_value) {
    PyObject* before = PyDict_GetItemWithError(dict, key);
    if (before == nullptr || tracked == nullptr || !is_passing(inputs[2].object)) return false;
    if (known == passing_stores_.end())
      passing_stores_.push_back({Object::share(dict), Object::share(key), Object::share(before)});
  } else {
    if (known == passing_stores_.end()) return false;
    const bool is_back = is_store && known->before.get() == inputs[2].object && tracked != nullptr;
    passing_stores_.erase(known);
    if (!is_back) return false;
  }
  note_dict_change(*tracked, inputs[1], ref_of(inputs[2].object));
  note_act();
  return true;
}

void TraceSteps::effect(StepKind kind, std::span<const Value> inputs, int arg, PyObject* names) {
  if (!active()) return;
  const Value target = inputs[0];
  let_go.note_replaced(kind, inputs);
  if (kind != StepKind::call) parent_ref(target);
  Tracked* tracked = find(target.object);
  const bool lazy = tracked != nullptr && (!tracked->born || kind == StepKind::set_cell);
  const bool is_store = kind == StepKind::set_item || kind == StepKind::del_item;
  if (is_store) use(inputs[1]);
  if (passes(kind, inputs)) return;
  const Value changed = inputs[kind == StepKind::call && inputs.size() > 1 ? 1 : 0];
  const bool is_field = kind == StepKind::set_attr && keeps_fields_apart(target.object, *this);
  if (is_field && is_passing(target.object)) {  // no step makes it again
    const bool is_lazy = is_lazy_number(inputs[2]);
    put_lazy(*tracked, inputs[1].object, is_lazy ? inputs[2].ref : 0);
    if (is_lazy) return note_act();
  }
  if (is_born(changed.object) && settle_around_transient(inputs)) {
    if (kind == StepKind::del_attr) settle_elements(*tracked);
    transient(changed.object);
    if (kind == StepKind::set_cell) {
      tracked->cell_written = true;
      tracked->cell_ref = inputs[1].ref;
    }
    note_act();
    return;
  }
  const Py_ssize_t place = is_store ? place_in_made_list(target.object, inputs[1]) : -1;
  const bool is_placed = place >= 0;
  if (!keeps_elements(kind) && !is_placed) settle_inside(inputs);
  const bool appends = kind == StepKind::list_append && is_lazy_number(inputs[1]);
  const bool fills =
      is_field || (kind == StepKind::set_item && keeps_values_apart(target.object, inputs[1]));
  if (Tracked* container = find(changed.object);
      container != nullptr && kind != StepKind::list_append && !fills && !is_placed)
    settle_elements(*container);
  const bool puts = appends || ((fills || (is_placed && kind == StepKind::set_item)) &&
                                is_lazy_number(inputs[2]));
  std::vector<Operand> prepared = operands(inputs, lazy || puts);
  if (!active()) return;
  if (appends) append_lazy(*tracked, inputs[1].ref);
  if (fills) put_lazy(*find(target.object), inputs[1].object, puts ? inputs[2].ref : 0);
  if (is_placed && kind == StepKind::del_item) find(target.object)->lazy.remove_item(place);
  if (is_placed && kind == StepKind::set_item)
    set_lazy(*find(target.object), place, puts ? inputs[2].ref : 0);
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

void TraceSteps::effect_call(std::span<const Value> callee_and_arguments, PyObject* names) {
  effect(StepKind::call, callee_and_arguments, 0, names);
}

Ref TraceSteps::make_by_effect(std::span<const Value> callee_and_arguments, PyObject* object) {
  const Ref ref = make(StepKind::call, callee_and_arguments, object);
  if (ref != 0) steps_.back().effect = true;
  return ref;
}

}  // namespace smelt::bytecode
