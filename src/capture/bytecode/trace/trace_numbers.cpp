// Numbers that the tensor program reads from tensors (`.item()`), and what is computed from them:
// no guard can know them, so the program computes them itself, gives those that Python needs, and
// checks what the run depended on.
#include <algorithm>
#include <string_view>

#include "capture/bytecode/nodes/lazy_elements.h"
#include "capture/bytecode/trace/trace.h"

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

}  // namespace

Ref Trace::number(PyObject* object, int32_t item) {
  if (!active()) return 0;
  Node node;
  node.kind = NodeKind::number;
  node.index = item;
  node.object = Object::share(object);
  node.late = true;
  return add(std::move(node));
}

bool Trace::may_guess_here(int most) {
  if (!locate) return false;
  Break here;
  locate(here);
  return ++guesses.at[{here.file, here.line}] <= most;
}

namespace {

// Whether random numbers that the program reads decide about it.
bool is_gamble(const std::vector<Node>& nodes, const TensorLog& log, Ref number) {
  const Node& node = nodes[number];
  if (!node.late) return false;
  if (node.kind == NodeKind::number) return log.is_gambled_number(node.index);
  return is_gamble(nodes, log, node.parent) ||
         (node.second != 0 && is_gamble(nodes, log, node.second));
}

}  // namespace

void Trace::expect(Ref number, bool truth) {
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
void Trace::expect_value(Ref number) {
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
  const Ref is_same =
      scalar(ScalarOp::compare, Py_EQ, {object.get(), number}, {object.get(), 0}, Py_True);
  if (active()) expect(is_same, true);
}

// A number beside one that is late: the program is given it if it changes, else it is part of it.
bool Trace::prepare_operand(Value v) {
  if (!PyBool_Check(v.object) && !(is_plain_number(v.object) && fits_scalar(v.object))) {
    stop(BreakReason::data_dependent, "a number that was read from a tensor");
    return false;
  }
  if (v.ref != 0 && !is_late(v.ref) && !is_runtime_scalar(v)) use(v);
  return active();
}

// -- gradients

void Trace::set_grad(Value tensor, Value grad) {
  if (!active()) return;
  log_->set_grad(tensor.object, grad.object == nullptr ? Py_None : grad.object);
  check_log();
  note_grad(tensor);
}

// What the tensor had for a gradient before may be dropped by that.
void Trace::note_grad(Value tensor) {
  static PyObject* const name = PyUnicode_InternFromString("grad");
  if (const LogValue value = log_->value_of(tensor.object); value >= 0)
    backward.grads.insert(value);
  if (const Ref old = paths_.find({NodeKind::attribute, ref_of(tensor.object), name, 0}))
    let_go.note(nodes_[old].object.get());
}

void Trace::add_grads(std::span<const Value> leaves) {
  backward.any = true;
  for (const Value& leaf : leaves) note_grad(leaf);
}

}  // namespace smelt::bytecode
