// What is found in objects: a path from what the trace knows already, or what it put there itself.
#include "capture/bytecode/trace/stored_items.h"
#include "capture/bytecode/trace/trace.h"

namespace smelt::bytecode {

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
  if (const auto written = find_stored(tracked->overlay, key))
    return *written == 0 ? element_ref(object) : *written;
  if (is_path(parent)) guard(parent, kGuardType);
  return path(NodeKind::dict_item, parent, key, 0, object);
}

void Trace::read_absent(Value dict, PyObject* key) {
  if (!active()) return;
  const Ref parent = parent_ref(dict);
  const Tracked* tracked = find(dict.object);
  if (tracked->born || tracked->known) return;
  if (find_stored(tracked->overlay, key)) return;
  if (is_path(parent)) guard(parent, kGuardType);
  required_.absent.push_back({parent, Object::share(key)});
}

Ref Trace::read_item(Value sequence, Py_ssize_t index, PyObject* object) {
  if (!active()) return 0;
  const Tracked* tracked = find(sequence.object);
  if (tracked == nullptr && sequence.ref == 0) return element_ref(object);
  if (tracked != nullptr) {
    if (const Ref lazy = tracked->lazy.item(index)) return lazy;
    if (tracked->born || tracked->known || index >= tracked->length) return element_ref(object);
    if (const auto written = find_stored_item(tracked->overlay, index))
      return *written == 0 ? element_ref(object) : *written;
    sequence.ref = tracked->ref;
  }
  guard(sequence.ref, kGuardType | kGuardLength);
  return path(NodeKind::item, sequence.ref, nullptr, static_cast<int>(index), object);
}

Ref Trace::read_slice(PyObject* slice, Py_ssize_t index) const {
  const Tracked* tracked = find(slice);
  return tracked == nullptr ? 0 : tracked->lazy.item(index);
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
    if (const auto written = find_stored(tracked->overlay, key))
      return *written == 0 ? element_ref(object) : *written;
  }
  return path(kind, ref, key, index, object);
}

Ref Trace::read_type(PyTypeObject* type, PyObject* name, PyObject* found) {
  if (!active()) return 0;
  auto* object = reinterpret_cast<PyObject*>(type);
  const Ref parent = constant_node(object);
  const PathKey absent{NodeKind::type_attribute, parent, name, 1};
  const PathKey present{NodeKind::type_attribute, parent, name, 0};
  if (paths_.find(found == nullptr ? absent : present) == 0)
    required_.lookups.push_back({Object::share(object), Object::share(name), Object::share(found)});
  if (found != nullptr) {
    const Ref ref = path(NodeKind::type_attribute, parent, name, 0, found);
    // Whether it is a descriptor is up to its class, which may get a __get__ or __set__ later.
    if ((Py_TYPE(found)->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0) guard_type({found, ref});
    return ref;
  }
  paths_.set(absent, parent);  // that it is known to be absent
  return 0;
}

}  // namespace smelt::bytecode
