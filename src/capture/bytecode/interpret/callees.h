// Which Python functions are followed, and which are left to CPython.
#pragma once

#include <Python.h>

namespace smelt::bytecode {

// Whether calls of the Python function are followed at all.
bool is_followed(PyObject* function);
// Without a further look: nothing is done with a function of its module in a way of its own.
bool is_in_plain_module(PyObject* function);
// Whether what it calls, and itself, are never roots: where the trace stops in it, CPython runs it to
// its end.
bool is_unit(PyObject* function);

}  // namespace smelt::bytecode
