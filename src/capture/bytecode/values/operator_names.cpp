#include "capture/bytecode/values/operator_names.h"

#include <opcode.h>

#include <array>
#include <string>

namespace smelt::bytecode {
namespace {

PyObject* intern(const std::string& name) {
  return PyUnicode_InternFromString(("__" + name + "__").c_str());
}

std::array<OperatorNames, 26> make_operators() {
  std::array<OperatorNames, 26> all{};
  const auto add = [&](int op, int inplace, const std::string& name) {
    all[static_cast<size_t>(op)] = {intern(name), intern("r" + name), nullptr};
    all[static_cast<size_t>(inplace)] = {intern(name), intern("r" + name), intern("i" + name)};
  };
  add(NB_ADD, NB_INPLACE_ADD, "add");
  add(NB_AND, NB_INPLACE_AND, "and");
  add(NB_FLOOR_DIVIDE, NB_INPLACE_FLOOR_DIVIDE, "floordiv");
  add(NB_LSHIFT, NB_INPLACE_LSHIFT, "lshift");
  add(NB_MATRIX_MULTIPLY, NB_INPLACE_MATRIX_MULTIPLY, "matmul");
  add(NB_MULTIPLY, NB_INPLACE_MULTIPLY, "mul");
  add(NB_REMAINDER, NB_INPLACE_REMAINDER, "mod");
  add(NB_OR, NB_INPLACE_OR, "or");
  add(NB_POWER, NB_INPLACE_POWER, "pow");
  add(NB_RSHIFT, NB_INPLACE_RSHIFT, "rshift");
  add(NB_SUBTRACT, NB_INPLACE_SUBTRACT, "sub");
  add(NB_TRUE_DIVIDE, NB_INPLACE_TRUE_DIVIDE, "truediv");
  add(NB_XOR, NB_INPLACE_XOR, "xor");
  return all;
}

}  // namespace

const OperatorNames& operator_names(int op) {
  static const auto all = make_operators();
  return all[static_cast<size_t>(op)];
}

const OperatorNames& compare_names(int op) {
  static const std::array<OperatorNames, 6> all = [] {
    PyObject *lt = intern("lt"), *le = intern("le"), *eq = intern("eq"), *ne = intern("ne"),
             *gt = intern("gt"), *ge = intern("ge");
    std::array<OperatorNames, 6> names{};
    names[Py_LT] = {lt, gt, nullptr};
    names[Py_LE] = {le, ge, nullptr};
    names[Py_EQ] = {eq, eq, nullptr};
    names[Py_NE] = {ne, ne, nullptr};
    names[Py_GT] = {gt, lt, nullptr};
    names[Py_GE] = {ge, le, nullptr};
    return names;
  }();
  return all[static_cast<size_t>(op)];
}

PyObject* unary_name(ScalarOp op) {
  static PyObject *neg = intern("neg"), *pos = intern("pos"), *invert = intern("invert");
  if (op == ScalarOp::unary_negative) return neg;
  return op == ScalarOp::unary_positive ? pos : invert;
}

}  // namespace smelt::bytecode
