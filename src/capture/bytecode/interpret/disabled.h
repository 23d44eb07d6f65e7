// Functions that smelt.disable has marked: they are never followed.
#pragma once

#include <Python.h>

namespace smelt::bytecode {

// The Python function behind a function or a bound method; nullptr: it is neither.
PyObject* python_function(PyObject* callable);
void mark_disabled(PyObject* function);
bool is_disabled(PyObject* function);

}  // namespace smelt::bytecode
