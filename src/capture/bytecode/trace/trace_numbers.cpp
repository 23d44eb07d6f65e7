#include "capture/bytecode/trace/trace_numbers.h"

#include <algorithm>

#include "capture/bytecode/nodes/lazy_elements.h"
#include "capture/bytecode/nodes/number_ops.h"
#include "capture/bytecode/nodes/paths.h"

namespace smelt::bytecode {

Ref TraceNumbers::scalar(ScalarOp op, int arg, Value a, Value b, PyObject* result) {
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

Ref TraceNumbers::scalar_call(PyObject* function, Value a, Value b, PyObject* result) {
  const Ref ref = scalar(ScalarOp::call, call_arg(function), a, b, result);
  if (ref != 0) nodes_[ref].key = Object::share(function);
  return ref;
}

Ref TraceNumbers::number(PyObject* object, int32_t item) {
  if (!active()) return 0;
  Node node;
  node.kind = NodeKind::number;
  node.index = item;
  node.object = Object::share(object);
  node.late = true;
  return add(std::move(node));
}

// A number beside one that is late: the program is given it if it changes, else it is part of it.
bool TraceNumbers::prepare_operand(Value v) {
  if (!PyBool_Check(v.object) && !(is_plain_number(v.object) && fits_scalar(v.object))) {
    stop(BreakReason::data_dependent, "a number that was read from a tensor");
    return false;
  }
  if (v.ref != 0 && !is_late(v.ref) && !is_runtime_scalar(v)) use(v);
  return active();
}

bool TraceNumbers::is_lazy_number(Value v) const { return v.ref != 0 && is_plain_number(v.object); }

// -- run-time scalars

bool TraceNumbers::is_runtime_scalar(Value v) const {
  if (!active() || changing == nullptr || !is_plain_number(v.object)) return false;
  v = value(v.object, v.ref);
  return v.ref != 0 && fits_scalar(v.object) && (is_late(v.ref) || is_changing(v.ref));
}

bool TraceNumbers::is_known_to_change(Ref path) const {
  return nodes_[path].kind == NodeKind::size || changed_numbers_.contains(path) ||
         (!changing->empty() && changing->contains(path_text(nodes_, path, code.get())));
}

bool TraceNumbers::is_changing(Ref number) const {
  return std::ranges::any_of(paths_behind(nodes_, number), [&](Ref ref) {
    return nodes_[ref].kind == NodeKind::slot || is_known_to_change(ref);
  });
}

bool TraceNumbers::has_changed(Ref number) const {
  if (changing == nullptr || (nodes_[number].asked & (kGuardEqual | kGuardSame)) != 0) return false;
  return std::ranges::any_of(paths_behind(nodes_, number),
                             [&](Ref ref) { return is_known_to_change(ref); });
}

// What a stored number was computed from will be another one in the next call, or so it seems:
// self.n += 1.
void TraceNumbers::note_changing(Ref stored) {
  if (stored == 0 || nodes_[stored].kind != NodeKind::scalar) return;
  for (const Ref ref : paths_behind(nodes_, stored)) changed_numbers_.insert(ref);
}

}  // namespace smelt::bytecode
