// Which of Python's operators on numbers a tensor program can do by itself.
#pragma once

#include <Python.h>

#include <optional>

#include "base/number.h"
#include "capture/bytecode/nodes/node.h"

namespace smelt::bytecode {

// `arg`: NB_ADD.. of opcode.h for a binary operator, Py_LT.. for a comparison, what call_arg() says
// for a call.
std::optional<NumberOp> number_op(ScalarOp op, int arg);
int call_arg(PyObject* function);

// Of an exact int that fits 64 bits, a float or a bool.
Number to_number(PyObject* object);

}  // namespace smelt::bytecode
