#include "capture/bytecode/trace/trace_reads.h"

#include "capture/bytecode/cpython/same_value.h"
#include "capture/bytecode/trace/stored_items.h"

namespace smelt::bytecode {

Ref TraceReads::slot_ref(int index) const { return slot_refs_[static_cast<size_t>(index)]; }

Ref TraceReads::path(NodeKind kind, Ref parent, PyObject* key, int index, PyObject* object) {
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

Ref TraceReads::element_ref(PyObject* object) {
  if (const Ref known = ref_of(object)) return known;
  if (!is_constant(object)) stop(BreakReason::unknown_object, Py_TYPE(object)->tp_name);
  const auto found = compounds_.find(object);
  return found == compounds_.end() ? 0 : found->second;
}

Ref TraceReads::lazy_value(Tracked& dict, PyObject* key) {
  if (dict.lazy.empty()) return 0;
  if (PyUnicode_CheckExact(key)) return dict.lazy.value(key);
  settle_elements(dict);  // it may be equal to one of theirs
  return 0;
}

bool TraceReads::is_changed(PyObject* dict, PyObject* key) const {
  const Tracked* tracked = find(dict);
  if (tracked == nullptr || tracked->born || tracked->known) return true;
  return find_stored(tracked->overlay, key).has_value();
}

Ref TraceReads::read_dict(Value dict, PyObject* key, PyObject* object) {
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

void TraceReads::read_absent(Value dict, PyObject* key) {
  if (!active()) return;
  const Ref parent = parent_ref(dict);
  const Tracked* tracked = find(dict.object);
  if (tracked->born || tracked->known) return;
  if (find_stored(tracked->overlay, key)) return;
  if (is_path(parent)) guard(parent, kGuardType);
  required_.absent.push_back({parent, Object::share(key)});
}

Ref TraceReads::read_item(Value sequence, Py_ssize_t index, PyObject* object) {
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

Ref TraceReads::read_slice(PyObject* slice, Py_ssize_t index) const {
  const Tracked* tracked = find(slice);
  return tracked == nullptr ? 0 : tracked->lazy.item(index);
}

Ref TraceReads::read_cell(Value cell, PyObject* object) {
  if (!active()) return 0;
  const Ref parent = parent_ref(cell);
  const Tracked* tracked = find(cell.object);
  if (tracked->cell_written) return value(object, tracked->cell_ref).ref;
  return path(NodeKind::cell, parent, nullptr, 0, object);
}

Ref TraceReads::read(NodeKind kind, Value parent, PyObject* key, int index, PyObject* object) {
  if (!active()) return 0;
  if (is_born(parent.object)) {
    const Tracked* tracked = kind == NodeKind::attribute ? find(parent.object) : nullptr;
    const Ref lazy = tracked == nullptr ? 0 : tracked->lazy.value(key);
    return lazy != 0 ? lazy : element_ref(object);
  }
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

Ref TraceReads::read_type(PyTypeObject* type, PyObject* name, PyObject* found) {
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

void TraceReads::guard_length(Value v) {
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

void TraceReads::guard_keys(Value v) {
  if (!active()) return;
  const Ref ref = parent_ref(v);
  const Tracked* tracked = find(v.object);
  if (tracked->born || tracked->known) return;
  Node& node = nodes_[ref];
  if (!node.keys) node.keys = tracked->keys_before ? tracked->keys_before : keys_of(v.object);
  required_.guards.push_back({ref, kGuardType | kGuardKeys, false});
}

Ref TraceReads::remembered(PyObject* function, PyObject* arguments, PyObject* keywords,
                           PyObject* result) {
  if (!active()) return 0;
  Object holder = Object::steal(Py_BuildValue("[O]", result));
  const Value list{holder.get(), constant_node(holder.get())};
  required_.remembered.push_back({Object::share(function), Object::share(arguments),
                                  Object::share(keywords), std::move(holder)});
  return read_item(list, 0, result);
}

}  // namespace smelt::bytecode
