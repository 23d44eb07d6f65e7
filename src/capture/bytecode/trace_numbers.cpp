// Numbers that the tensor program reads from tensors (`.item()`), and what is computed from them:
// no guard can know them, so the program computes them itself, gives those that Python needs, and
// checks what the run depended on.
#include <opcode.h>

#include <algorithm>
#include <string_view>

#include "capture/bytecode/lazy_elements.h"
#include "capture/bytecode/number_ops.h"
#include "capture/bytecode/program_numbers.h"
#include "capture/bytecode/trace.h"

namespace smelt::bytecode {
namespace {

std::optional<NumberOp> binary_op(int arg) {
  switch (arg) {
    case NB_ADD:
    case NB_INPLACE_ADD: return NumberOp::add;
    case NB_SUBTRACT:
    case NB_INPLACE_SUBTRACT: return NumberOp::sub;
    case NB_MULTIPLY:
    case NB_INPLACE_MULTIPLY: return NumberOp::mul;
    case NB_TRUE_DIVIDE:
    case NB_INPLACE_TRUE_DIVIDE: return NumberOp::div;
    case NB_FLOOR_DIVIDE:
    case NB_INPLACE_FLOOR_DIVIDE: return NumberOp::floor_div;
    case NB_REMAINDER:
    case NB_INPLACE_REMAINDER: return NumberOp::mod;
    case NB_POWER:
    case NB_INPLACE_POWER: return NumberOp::pow;
    default: return std::nullopt;
  }
}

NumberOp compare_op(int arg) {
  switch (arg) {
    case Py_LT: return NumberOp::lt;
    case Py_LE: return NumberOp::le;
    case Py_EQ: return NumberOp::eq;
    case Py_NE: return NumberOp::ne;
    case Py_GT: return NumberOp::gt;
    default: return NumberOp::ge;
  }
}

// Nothing that it is computed from is drawn or of floating point.
bool is_steady(const std::vector<Node>& nodes, const TensorLog& log, Ref number) {
  const Node& node = nodes[number];
  if (!node.late) return true;
  if (node.kind == NodeKind::number) return log.is_steady_number(node.index);
  return is_steady(nodes, log, node.parent) &&
         (node.second == 0 || is_steady(nodes, log, node.second));
}

}  // namespace

std::optional<NumberOp> number_op(ScalarOp op, int arg) {
  switch (op) {
    case ScalarOp::binary: return binary_op(arg);
    case ScalarOp::compare: return compare_op(arg);
    case ScalarOp::unary_negative: return NumberOp::neg;
    case ScalarOp::unary_not: return NumberOp::negation;
    case ScalarOp::is_true: return NumberOp::truth;
    case ScalarOp::call: return arg < 0 ? std::nullopt : std::optional(static_cast<NumberOp>(arg));
    default: return std::nullopt;
  }
}

int call_arg(PyObject* function) {
  if (function == reinterpret_cast<PyObject*>(&PyFloat_Type))
    return static_cast<int>(NumberOp::as_float);
  if (function == reinterpret_cast<PyObject*>(&PyLong_Type))
    return static_cast<int>(NumberOp::as_int);
  if (!PyCFunction_Check(function)) return -1;
  const std::string_view name = reinterpret_cast<PyCFunctionObject*>(function)->m_ml->ml_name;
  if (name == "abs") return static_cast<int>(NumberOp::abs);
  if (name == "min") return static_cast<int>(NumberOp::min);
  if (name == "max") return static_cast<int>(NumberOp::max);
  return -1;
}

Number to_number(PyObject* object) {
  if (PyBool_Check(object)) return object == Py_True;
  if (PyFloat_CheckExact(object)) return PyFloat_AS_DOUBLE(object);
  return static_cast<int64_t>(PyLong_AsLongLong(object));
}

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
  return ++guessed_at_[{here.file, here.line}] <= most;
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
  if (!has_backward && is_gamble(nodes_, *log_, number)) {
    stop(BreakReason::data_dependent, "a branch on a random number");
    return;
  }
  if (!speculates) {
    stop(BreakReason::data_dependent, "a branch on a number that was read from a tensor");
    return;
  }
  has_guessed = true;
  log_->expect(number, nodes_[number].object.get(), truth);
  check_log();
}

// A size, an index: the program expects it, if it is most often what it was.
void Trace::expect_value(Ref number) {
  if ((nodes_[number].asked & kGuardEqual) != 0) return;
  constexpr int kMostGuesses = 100;  // at one line
  const Object object = nodes_[number].object;
  const bool is_whole = PyLong_CheckExact(object.get()) || PyBool_Check(object.get());
  if (!speculates || !is_whole || !is_steady(nodes_, *log_, number) ||
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

// -- what the program has to do with them

uint32_t ProgramNumbers::give(Ref scalar) {
  const auto [at, is_new] = given_.emplace(scalar, static_cast<uint32_t>(wanted_.scalars.size()));
  if (is_new) {
    wanted_.scalars.push_back(scalar);
    scalars_.push_back(scalar);
  }
  return at->second;
}

NumberStep::Operand ProgramNumbers::operand(Ref ref) {
  using From = NumberStep::Operand::From;
  if (nodes_[ref].late) return {From::number, define(ref), {}};
  const bool is_literal = nodes_[ref].kind == NodeKind::constant ||
                          (nodes_[ref].guards & (kGuardEqual | kGuardSame)) != 0;
  if (is_literal) return {From::literal, 0, to_number(nodes_[ref].object.get())};
  return {From::scalar, give(ref), {}};
}

uint32_t ProgramNumbers::define(Ref number) {
  if (const auto known = defined_.find(number); known != defined_.end()) return known->second;
  const Node& node = nodes_[number];
  NumberStep step;
  step.id = number;
  step.seen = to_number(node.object.get());
  if (node.kind == NodeKind::number) {
    step.item = node.index;
  } else {
    step.op = *number_op(node.op, node.index);
    step.a = operand(node.parent);
    if (node.second != 0) step.b = operand(node.second);
  }
  const auto place = static_cast<uint32_t>(wanted_.numbers.size());
  wanted_.numbers.push_back(step);
  defined_.emplace(number, place);
  return place;
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
  if (const LogValue value = log_->value_of(tensor.object); value >= 0) grads_.insert(value);
  if (const Ref old = paths_.find({NodeKind::attribute, ref_of(tensor.object), name, 0}))
    let_go.note(nodes_[old].object.get());
}

void Trace::add_grads(std::span<const Value> leaves) {
  has_backward = true;
  for (const Value& leaf : leaves) note_grad(leaf);
}

}  // namespace smelt::bytecode
