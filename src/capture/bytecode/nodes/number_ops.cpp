#include "capture/bytecode/nodes/number_ops.h"

#include <opcode.h>

#include <string_view>

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

}  // namespace smelt::bytecode
