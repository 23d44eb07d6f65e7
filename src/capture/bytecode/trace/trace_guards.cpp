// What a run depended on, so that a cached call can ask for it.
#include <algorithm>

#include "capture/bytecode/cpython/same_value.h"
#include "capture/bytecode/trace/trace.h"

namespace smelt::bytecode {
namespace {

constexpr int kMaxUseDepth = 32;

// bool() asks C code, a deque's length for one.
bool has_truth_of_its_own(const PyTypeObject* type) {
  return (type->tp_as_number != nullptr && type->tp_as_number->nb_bool != nullptr) ||
         (type->tp_as_mapping != nullptr && type->tp_as_mapping->mp_length != nullptr) ||
         (type->tp_as_sequence != nullptr && type->tp_as_sequence->sq_length != nullptr);
}

}  // namespace

void Trace::guard(Ref ref, uint16_t bits, bool truth) {
  if (ref == 0 || !active()) return;
  if (nodes_[ref].late) {
    if ((bits & ~(kGuardType | kGuardTruth)) != 0)
      expect_value(ref);
    else if (bits & kGuardTruth)
      expect(ref, truth);
    return;  // its type is part of the program
  }
  Node& node = nodes_[ref];
  if (node.kind == NodeKind::tensor || node.kind == NodeKind::result) return;
  if ((bits & ~node.asked) == 0 && (!(bits & kGuardTruth) || node.truth == truth)) return;
  // The object is always the same one, but what is in it may change.
  const bool asks_contents = (bits & (kGuardLength | kGuardTruth)) != 0;
  const bool asks_code = (bits & kGuardFunction) != 0;
  if (node.kind == NodeKind::constant && !asks_code &&
      (!asks_contents || is_constant(node.object.get())))
    return;
  node.asked |= bits;
  if (bits & kGuardTruth) node.truth = truth;  // of an object that changes, the last answer counts
  required_.guards.push_back({ref, bits, truth});
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
  required_.guards.push_back({ref, kGuardType | kGuardKeys, false});
}

void Trace::guard_truth(Value v, bool truth) {
  if (!active()) return;
  const Ref ref = value(v.object, v.ref).ref;
  if (ref == 0) return;
  if (is_late(ref)) {
    guard(ref, kGuardTruth, truth);
  } else if (is_singleton(v.object)) {
    guard(ref, nodes_[ref].kind == NodeKind::scalar ? kGuardTruth : kGuardSame, truth);
  } else if (is_atom(v.object)) {
    guard(ref, kGuardType | kGuardTruth, truth);
  } else if (length_of(v.object) >= 0) {
    const Tracked* tracked = find(v.object);
    if (tracked != nullptr && (tracked->length != length_of(v.object) || tracked->keys_before))
      guard_length(v);
    else if (tracked == nullptr || !(tracked->born || tracked->known))
      guard(ref, kGuardType | kGuardTruth, truth);
  } else if (!is_born(v.object) && has_truth_of_its_own(Py_TYPE(v.object))) {
    if (is_constant(v.object))
      use(v);
    else
      stop(BreakReason::unknown_object, Py_TYPE(v.object)->tp_name);
  } else {
    guard(ref, kGuardType);
  }
}

void Trace::guard_function(Value v) {
  if (!active() || is_born(v.object)) return;
  const Ref ref = value(v.object, v.ref).ref;
  guard(ref != 0 ? ref : constant_node(v.object), kGuardFunction);
}

void Trace::guard_alias(Value a, Value b, bool same) {
  if (!active()) return;
  const Ref first = value(a.object, a.ref).ref, second = value(b.object, b.ref).ref;
  if (is_path(first) && is_path(second) && first != second)
    required_.aliases.push_back({first, second, same});
}

bool Trace::has_read(PyObject* function, PyObject* arguments) const {
  return std::ranges::any_of(required_.readings, [&](const Reading& known) {
    return known.function.get() == function && same_value(known.arguments.get(), arguments);
  });
}

void Trace::guard_reading(PyObject* function, PyObject* arguments, PyObject* value) {
  if (!active() || has_read(function, arguments)) return;
  required_.readings.push_back(
      {Object::share(function), Object::share(arguments), Object::share(value)});
}

Ref Trace::remembered(PyObject* function, PyObject* arguments, PyObject* keywords,
                      PyObject* result) {
  if (!active()) return 0;
  Object holder = Object::steal(Py_BuildValue("[O]", result));
  const Value list{holder.get(), constant_node(holder.get())};
  required_.remembered.push_back({Object::share(function), Object::share(arguments),
                                  Object::share(keywords), std::move(holder)});
  return read_item(list, 0, result);
}

Object Trace::read_state(PyObject* function, PyObject* arguments) {
  Object value = Object::steal(PyObject_Call(function, arguments, nullptr));
  PyErr_Clear();
  if (!value || !is_constant(value.get())) return {};
  guard_reading(function, arguments, value.get());
  return value;
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
    case NodeKind::number:
    case NodeKind::scalar: guard(v.ref, kGuardEqual); return;
    case NodeKind::result:
      if (PyUnicode_CheckExact(v.object))
        stop(BreakReason::data_dependent, "formatting a tensor");
      else
        use_elements(v);
      return;
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
  } else if (is_singleton(object) || (is_fixed(object) && !is_device(object))) {
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
  } else if (PySlice_Check(object)) {
    if (Tracked* slice = find(object)) settle_elements(*slice);
  }
  --use_depth_;
}

}  // namespace smelt::bytecode
