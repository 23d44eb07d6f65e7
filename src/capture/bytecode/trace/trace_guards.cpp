#include "capture/bytecode/trace/trace_guards.h"

#include <algorithm>
#include <unordered_set>

#include "capture/bytecode/cpython/same_value.h"
#include "capture/bytecode/nodes/lazy_elements.h"

namespace smelt::bytecode {
namespace {

// Nothing that it is computed from is drawn or of floating point.
bool is_steady(const std::vector<Node>& nodes, const TensorLog& log, Ref number) {
  const Node& node = nodes[number];
  if (!node.late) return true;
  if (node.kind == NodeKind::number) return log.is_steady_number(node.index);
  return is_steady(nodes, log, node.parent) &&
         (node.second == 0 || is_steady(nodes, log, node.second));
}

// Whether random numbers that the program reads decide about it.
bool is_gamble(const std::vector<Node>& nodes, const TensorLog& log, Ref number) {
  const Node& node = nodes[number];
  if (!node.late) return false;
  if (node.kind == NodeKind::number) return log.is_gambled_number(node.index);
  return is_gamble(nodes, log, node.parent) ||
         (node.second != 0 && is_gamble(nodes, log, node.second));
}

// Classes and modules are known by identity, and may be given another class all the same.
bool may_get_another_class(PyObject* object) {
  return PyModule_Check(object) || (Py_TYPE(object)->tp_flags & Py_TPFLAGS_IMMUTABLETYPE) == 0;
}

}  // namespace

void TraceGuards::guard(Ref ref, uint16_t bits, bool truth) {
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
  const bool asks_class = (bits & kGuardType) != 0 && may_get_another_class(node.object.get());
  if (node.kind == NodeKind::constant && !asks_code && !asks_class &&
      (!asks_contents || is_constant(node.object.get())))
    return;
  node.asked |= bits;
  if (bits & kGuardTruth) node.truth = truth;  // of an object that changes, the last answer counts
  if (node.kind == NodeKind::size || node.kind == NodeKind::scalar) note_guard(ref, bits, truth);
  required_.guards.push_back({ref, bits, truth});
}

void TraceGuards::guard_type(Value v) {
  Ref ref = value(v.object, v.ref).ref;
  if (ref == 0 && active() && is_constant(v.object) && may_get_another_class(v.object))
    ref = constant_node(v.object);
  guard(ref, kGuardType);
}

void TraceGuards::guard_same(Value v) { guard(value(v.object, v.ref).ref, kGuardSame); }

void TraceGuards::guard_function(Value v) {
  if (!active() || is_born(v.object)) return;
  const Ref ref = value(v.object, v.ref).ref;
  guard(ref != 0 ? ref : constant_node(v.object), kGuardFunction);
}

void TraceGuards::guard_alias(Value a, Value b, bool same) {
  if (!active()) return;
  const Ref first = value(a.object, a.ref).ref, second = value(b.object, b.ref).ref;
  if (is_path(first) && is_path(second) && first != second)
    required_.aliases.push_back({first, second, same});
}

bool TraceGuards::has_read(PyObject* function, PyObject* arguments) const {
  return std::ranges::any_of(required_.readings, [&](const Reading& known) {
    return known.function.get() == function && same_value(known.arguments.get(), arguments);
  });
}

void TraceGuards::guard_reading(PyObject* function, PyObject* arguments, PyObject* value) {
  if (!active() || has_read(function, arguments)) return;
  required_.readings.push_back(
      {Object::share(function), Object::share(arguments), Object::share(value)});
}

Object TraceGuards::read_state(PyObject* function, PyObject* arguments) {
  Object value = Object::steal(PyObject_Call(function, arguments, nullptr));
  PyErr_Clear();
  if (!value || !is_constant(value.get())) return {};
  guard_reading(function, arguments, value.get());
  return value;
}

void TraceGuards::note_end() {
  for (Node& node : nodes_) {
    if (!node.object || node.gone) continue;
    PyObject* object = node.object.get();
    if (PyFunction_Check(object))
      node.seen = Object::share(PyFunction_GET_CODE(object));
    else if (may_get_another_class(object))
      node.seen = Object::share(reinterpret_cast<PyObject*>(Py_TYPE(object)));
  }
  note_types();
}

void TraceGuards::note_types() {
  std::unordered_set<const PyTypeObject*> known;
  const auto note = [&](PyTypeObject* type) {
    if (can_change(type) && known.insert(type).second) required_.types.push_back(type_state(type));
  };
  for (const TypeLookup& lookup : required_.lookups)
    note(reinterpret_cast<PyTypeObject*>(lookup.type.get()));
  for (const GuardEntry& entry : required_.guards)
    if ((entry.bits & (kGuardType | kGuardSame)) != 0 && nodes_[entry.ref].object)
      note(nodes_[entry.ref].type());
}

void TraceGuards::settle_elements(Tracked& container) {
  for (const Ref ref : container.lazy.take()) guard(ref, kGuardEqual);
}

// -- numbers that no guard can know

bool TraceGuards::may_guess_here(int most) {
  if (!locate) return false;
  Break here;
  locate(here);
  return ++guesses.at[{here.file, here.line}] <= most;
}

void TraceGuards::expect(Ref number, bool truth) {
  if (!backward.any && is_gamble(nodes_, *log_, number)) {
    stop(BreakReason::data_dependent, "a branch on a random number");
    return;
  }
  if (!guesses.are_allowed) {
    stop(BreakReason::data_dependent, "a branch on a number that was read from a tensor");
    return;
  }
  guesses.any = true;
  log_->expect(number, nodes_[number].object.get(), truth);
  check_log();
}

// A size, an index: the program expects it, if it is most often what it was.
void TraceGuards::expect_value(Ref number) {
  if ((nodes_[number].asked & kGuardEqual) != 0) return;
  constexpr int kMostGuesses = 100;  // at one line
  const Object object = nodes_[number].object;
  const bool is_whole = PyLong_CheckExact(object.get()) || PyBool_Check(object.get());
  if (!guesses.are_allowed || !is_whole || !is_steady(nodes_, *log_, number) ||
      !may_guess_here(kMostGuesses)) {
    stop(BreakReason::data_dependent, "a number that was read from a tensor");
    return;
  }
  nodes_[number].asked |= kGuardEqual;
  if (!PyBool_Check(object.get()) && !fits_scalar(object.get())) {
    stop(BreakReason::data_dependent, "a number that was read from a tensor");
    return;
  }
  expect(add_scalar(ScalarOp::compare, Py_EQ, {object.get(), number}, {object.get(), 0}, Py_True,
                    /*late=*/true),
         true);
}

}  // namespace smelt::bytecode
