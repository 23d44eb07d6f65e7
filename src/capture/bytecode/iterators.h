// Where the iterators over lists, tuples and dicts stand: so much of CPython's own structures is
// looked at here.
#pragma once

#include <Python.h>

#include "capture/bytecode/object.h"

namespace smelt::bytecode {

// iter(list), iter(tuple)
bool is_sequence_iterator(PyObject* iterator);
// iter(dict), iter(dict.values()), iter(dict.items()); not those of an OrderedDict
bool is_dict_iterator(PyObject* iterator);

// What one of these goes over, borrowed; nullptr: at its end, or it is another kind of iterator.
PyObject* iterated_by(PyObject* iterator);
// How many elements it has given out; -1: it is at its end, or the elements behind it are not those
// that came in the same order (a dict that was changed).
Py_ssize_t position_of(PyObject* iterator);
// An iterator of that type which has given out so many.
Object make_iterator(PyTypeObject* type, PyObject* container, Py_ssize_t position);
// Goes on by so many elements. False with an error set.
bool advance(PyObject* iterator, Py_ssize_t elements);

}  // namespace smelt::bytecode
