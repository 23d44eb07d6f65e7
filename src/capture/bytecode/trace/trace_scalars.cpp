// Numbers that are not settled: computed again by each cached call, handed to tensor ops as
// run-time scalars, or put into containers as they are.
#include <algorithm>

#include "capture/bytecode/nodes/number_ops.h"
#include "capture/bytecode/nodes/paths.h"
#include "capture/bytecode/trace/stored_items.h"
#include "capture/bytecode/trace/trace.h"

namespace smelt::bytecode {

Ref Trace::scalar(ScalarOp op, int arg, Value a, Value b, PyObject* result) {
  if (!active()) return 0;
  if (a.ref == 0 && (b.object == nullptr || b.ref == 0)) return 0;
  for (const Value& v : {a, b})
    if (v.ref != 0 && nodes_[v.ref].kind == NodeKind::result) use(v);  // text of a tensor
  if (!active()) return 0;
  const bool late = is_late(a.ref) || is_late(b.ref);
  if (late && !number_op(op, arg)) {
    stop(BreakReason::data_dependent, "a number that was read from a tensor");
    return 0;
  }
  if (late && !(prepare_operand(a) && (b.object == nullptr || prepare_operand(b)))) return 0;
  const Ref made = add_scalar(op, arg, a, b, result, late);
  const auto guard_operand = [&](Ref ref, PyObject* object) {
    guard(ref, is_singleton(object) && !PyBool_Check(object) ? kGuardSame : kGuardType);
  };
  guard_operand(nodes_[made].parent, a.object);
  if (b.object != nullptr) guard_operand(nodes_[made].second, b.object);
  return made;
}

Ref Trace::add_scalar(ScalarOp op, int arg, Value a, Value b, PyObject* result, bool late) {
  Node node;
  node.kind = NodeKind::scalar;
  node.op = op;
  node.index = arg;
  // A constant operand stands in a constant node, so that both sides can be nodes.
  node.parent = a.ref != 0 ? a.ref : constant_node(a.object);
  if (b.object != nullptr) node.second = b.ref != 0 ? b.ref : constant_node(b.object);
  node.object = Object::share(result);
  node.late = late;
  return add(std::move(node));
}

Ref Trace::scalar_call(PyObject* function, Value a, Value b, PyObject* result) {
  const Ref ref = scalar(ScalarOp::call, call_arg(function), a, b, result);
  if (ref != 0) nodes_[ref].key = Object::share(function);
  return ref;
}

// -- run-time scalars

bool Trace::is_runtime_scalar(Value v) const {
  if (!active() || changing == nullptr || !is_plain_number(v.object)) return false;
  v = value(v.object, v.ref);
  return v.ref != 0 && fits_scalar(v.object) && (is_late(v.ref) || is_changing(v.ref));
}

bool Trace::is_changing(Ref number) const {
  return std::ranges::any_of(paths_behind(nodes_, number), [&](Ref ref) {
    return nodes_[ref].kind == NodeKind::slot || nodes_[ref].kind == NodeKind::size ||
           changed_numbers_.contains(ref) ||
           (!changing->empty() && changing->contains(path_text(nodes_, ref, code.get())));
  });
}

// What a stored number was computed from will be another one in the next call, or so it seems:
// self.n += 1.
void Trace::note_changing(Ref stored) {
  if (stored == 0 || nodes_[stored].kind != NodeKind::scalar) return;
  for (const Ref ref : paths_behind(nodes_, stored)) changed_numbers_.insert(ref);
}

bool Trace::is_changed(PyObject* dict, PyObject* key) const {
  const Tracked* tracked = find(dict);
  if (tracked == nullptr || tracked->born || tracked->known) return true;
  return find_stored(tracked->overlay, key).has_value();
}

// -- lazy elements

namespace {

// Keys that are compared without running any code of the user's, and that equal no others.
bool has_plain_keys(std::span<const Value> keys_and_values) {
  for (size_t i = 0; i < keys_and_values.size(); i += 2)
    if (!PyUnicode_CheckExact(keys_and_values[i].object)) return false;
  return true;
}

}  // namespace

bool Trace::is_lazy_number(Value v) const { return v.ref != 0 && is_plain_number(v.object); }

std::vector<Operand> Trace::elements(StepKind kind, std::span<const Value> values,
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

void Trace::append_lazy(Tracked& list, Ref number) {
  guard(number, kGuardType);
  list.lazy.add_item(PyList_GET_SIZE(list.object.get()), number);
  ++lazy_elements_;
}

void Trace::put_lazy(Tracked& dict, PyObject* key, Ref number) {
  if (number != 0) {
    guard(number, kGuardType);
    ++lazy_elements_;
  }
  dict.lazy.set_value(key, number);
}

// A store under the key is seen by no reader of another one. In an object's __dict__ it would be
// seen by those of the object's attributes, who do not ask the dict.
bool Trace::keeps_values_apart(PyObject* dict, Value key) const {
  const Tracked* tracked = find(dict);
  if (tracked == nullptr || !tracked->born || !PyDict_CheckExact(dict) ||
      !PyUnicode_CheckExact(key.object))
    return false;
  const Node& node = nodes_[tracked->ref];
  return node.kind != NodeKind::result ||
         steps_[static_cast<size_t>(node.index)].kind != StepKind::instance_dict;
}

Ref Trace::lazy_value(Tracked& dict, PyObject* key) {
  if (dict.lazy.empty()) return 0;
  if (PyUnicode_CheckExact(key)) return dict.lazy.value(key);
  settle_elements(dict);  // it may be equal to one of theirs
  return 0;
}

void Trace::settle_inside(std::span<const Value> containers) {
  if (lazy_elements_ == 0) return;
  std::vector<Tracked*> todo;
  std::unordered_set<PyObject*> seen;
  const auto visit = [&](PyObject* object) {
    Tracked* tracked = object == nullptr ? nullptr : find(object);
    if (tracked == nullptr || !seen.insert(object).second) return;
    // A dict from outside has none: what is put into it is in its overlay.
    if (PyTuple_Check(object) || PyList_Check(object) || PySlice_Check(object) ||
        (PyDict_Check(object) && tracked->born))
      todo.push_back(tracked);
  };
  for (const Value& container : containers) visit(container.object);
  while (!todo.empty()) {
    Tracked* tracked = todo.back();
    todo.pop_back();
    settle_elements(*tracked);
    PyObject* object = tracked->object.get();
    if (PySlice_Check(object)) continue;
    if (PyDict_Check(object)) {
      PyObject *key, *item;
      Py_ssize_t at = 0;
      while (PyDict_Next(object, &at, &key, &item)) visit(item);
      continue;
    }
    for (Py_ssize_t i = 0; i < Py_SIZE(object); ++i)
      visit(PyTuple_Check(object) ? PyTuple_GET_ITEM(object, i) : PyList_GET_ITEM(object, i));
  }
}

void Trace::drop_contents(Value list) {
  if (!active()) return;
  guard_type(list);
  parent_ref(list);
  Tracked* tracked = find(list.object);
  if (tracked == nullptr) return;
  tracked->lazy.clear();
  tracked->known = true;
}

void Trace::settle_elements(Tracked& container) {
  for (const Ref ref : container.lazy.take()) guard(ref, kGuardEqual);
}

}  // namespace smelt::bytecode
