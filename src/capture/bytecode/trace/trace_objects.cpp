#include "capture/bytecode/trace/trace_objects.h"

#include <algorithm>

namespace smelt::bytecode {

TraceObjects::TraceObjects() {
  constexpr size_t kMany = 256;  // a small model has about so many
  nodes_.reserve(kMany);
  nodes_.resize(1);
}

Ref TraceObjects::find_born(PyObject* object) const {
  if (!tensors().is_tensor(object)) return 0;
  const LogValue value = log_->value_of(object);
  return value < 0 || static_cast<size_t>(value) >= born_tensors_.size()
             ? 0
             : born_tensors_[static_cast<size_t>(value)];
}

bool TraceObjects::is_tracked(PyObject* object) const { return ref_of(object) != 0; }

bool TraceObjects::is_born(PyObject* object) const {
  const Tracked* tracked = find(object);
  return tracked == nullptr ? born_tensor(object) != 0 : tracked->born;
}

Value TraceObjects::value(PyObject* object, Ref ref) const {
  const Ref known = ref_of(object);
  return {object, known != 0 ? known : ref};
}

bool TraceObjects::is_path(Ref ref) const {
  return ref != 0 && nodes_[ref].kind < NodeKind::scalar;
}

bool TraceObjects::is_passing(PyObject* object) const {
  const Tracked* tracked = find(object);
  return tracked != nullptr && (tracked->transient || (tracked->born && tracked->iterated.object));
}

Ref TraceObjects::add(Node node) {
  nodes_.push_back(std::move(node));
  return static_cast<Ref>(nodes_.size() - 1);
}

Ref TraceObjects::add_scalar(ScalarOp op, int arg, Value a, Value b, PyObject* result, bool late) {
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

Tracked& TraceObjects::track(PyObject* object, Ref ref, bool born) {
  Tracked& tracked = objects_.add(object);
  tracked.object = Object::share(object);
  tracked.ref = ref;
  tracked.born = born;
  tracked.length = length_of(object);
  if (born) let_go.note(object);  // an instruction may make it for itself alone
  return tracked;
}

Ref TraceObjects::constant_node(PyObject* object) {
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

Ref TraceObjects::parent_ref(Value parent) {
  if (const Ref known = ref_of(parent.object)) return known;
  // A namespace is what it is as long as its function or module is; nothing says so of others.
  if (parent.ref == 0 && !is_constant(parent.object) && !PyDict_CheckExact(parent.object))
    stop(BreakReason::unknown_object, Py_TYPE(parent.object)->tp_name);
  return parent.ref != 0 ? parent.ref : constant_node(parent.object);
}

Ref TraceObjects::tensor(PyObject* object) {
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
  const auto place = static_cast<size_t>(known);
  if (place >= born_tensors_.size()) born_tensors_.resize(std::max(place + 1, 2 * place));
  if (born_tensors_[place] == 0) born_tensors_[place] = ref;
  return ref;
}

void TraceObjects::hold(PyObject* object) { held_.push_back(Object::share(object)); }

}  // namespace smelt::bytecode
