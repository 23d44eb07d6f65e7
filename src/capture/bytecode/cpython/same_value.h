// Whether two objects are the same value for a trace, found out without running anyone's __eq__ or
// __hash__.
#pragma once

#include <Python.h>

namespace smelt::bytecode {

// The same object; or two of the same exact type int, float, complex, str, bytes that are equal; or
// two tuples, frozensets (in the same order) or slices of such. Floats are compared bit by bit: a
// NaN is itself, 0.0 is not -0.0.
bool same_value(PyObject* a, PyObject* b);
// The set's or frozenset's elements, in the order of iteration, are the same values as the tuple's
// items.
bool same_elements(PyObject* set, PyObject* elements);
// The dict's keys, in the order of iteration, are the same values as the tuple's items.
bool same_keys(PyObject* dict, PyObject* keys);

}  // namespace smelt::bytecode
