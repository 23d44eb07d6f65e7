#include "capture/bytecode/trace/trace_uses.h"

#include <unordered_set>

#include "capture/bytecode/nodes/lazy_elements.h"

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

void TraceUses::use(Value v) {
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

void TraceUses::use_outside(Value v) {
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
void TraceUses::use_elements(Value v) {
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
  } else if (lazy_elements_ != 0 && may_have_lazy_fields(object)) {
    if (Tracked* instance = find(object)) settle_elements(*instance);
  }
  --use_depth_;
}

void TraceUses::guard_truth(Value v, bool truth) {
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

void TraceUses::own(Value container) {
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

void TraceUses::settle_inside(std::span<const Value> containers) {
  if (lazy_elements_ == 0) return;
  std::vector<Tracked*> todo;
  std::unordered_set<PyObject*> seen;
  const auto visit = [&](PyObject* object) {
    Tracked* tracked = object == nullptr ? nullptr : find(object);
    if (tracked == nullptr || !seen.insert(object).second) return;
    // A dict from outside has none: what is put into it is in its overlay.
    if (PyTuple_Check(object) || PyList_Check(object) || PySlice_Check(object) ||
        (tracked->born && (PyDict_Check(object) || may_have_lazy_fields(object))))
      todo.push_back(tracked);
  };
  const visitproc visit_field = [](PyObject* field, void* visitor) {
    (*static_cast<decltype(visit)*>(visitor))(field);
    return 0;
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
    if (!PyTuple_Check(object) && !PyList_Check(object)) {
      if (const traverseproc traverse = Py_TYPE(object)->tp_traverse)
        traverse(object, visit_field, const_cast<void*>(static_cast<const void*>(&visit)));
      continue;
    }
    for (Py_ssize_t i = 0; i < Py_SIZE(object); ++i)
      visit(PyTuple_Check(object) ? PyTuple_GET_ITEM(object, i) : PyList_GET_ITEM(object, i));
  }
}

void TraceUses::drop_contents(Value list) {
  if (!active()) return;
  guard_type(list);
  parent_ref(list);
  Tracked* tracked = find(list.object);
  if (tracked == nullptr) return;
  tracked->lazy.clear();
  tracked->known = true;
}

}  // namespace smelt::bytecode
