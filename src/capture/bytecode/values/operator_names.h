// The names of the methods behind operators.
#pragma once

#include <Python.h>

#include "capture/bytecode/nodes/node.h"

namespace smelt::bytecode {

struct OperatorNames {
  PyObject* left = nullptr;     // __add__
  PyObject* right = nullptr;    // __radd__
  PyObject* inplace = nullptr;  // __iadd__, for the in-place operators
};

const OperatorNames& operator_names(int op);  // NB_ADD...
const OperatorNames& compare_names(int op);   // Py_LT...
PyObject* unary_name(ScalarOp op);

}  // namespace smelt::bytecode
