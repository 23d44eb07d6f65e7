// Where iterators stand: so much of CPython's own structures is looked at here.
#pragma once

#include <Python.h>

#include <optional>
#include <vector>

#include "capture/bytecode/cpython/object.h"

namespace smelt::bytecode {

// iter(list), iter(tuple)
bool is_sequence_iterator(PyObject* iterator);
// iter(dict), iter(dict.values()), iter(dict.items()); not those of an OrderedDict
bool is_dict_iterator(PyObject* iterator);

// What one of these goes over, borrowed; nullptr: at its end, or it is another kind of iterator.
PyObject* iterated_by(PyObject* iterator);
// d.keys(), d.values(), d.items()
bool is_dict_view(PyObject* object);
// What an iterator goes over, or a view shows; borrowed.
PyObject* gone_over(PyObject* object);
// How many elements it has given out; -1: it is at its end, or the elements behind it are not those
// that came in the same order (a dict that was changed).
Py_ssize_t position_of(PyObject* iterator);
// What it takes to make an iterator that is like this one: something to go over and how many
// elements of it were given out; or, without that, the arguments of its type. Of a generator: its
// function, and that one's arguments.
struct IteratorParts {
  Object over;
  Py_ssize_t position = 0;
  std::vector<Object> arguments;
};
// Of list, tuple, dict, set, range, of reversed, enumerate, zip, map, filter, and of a generator
// that has not begun. Nothing: it is another kind, at its end, or what it goes over has changed.
std::optional<IteratorParts> parts_of(PyObject* iterator);
// The range that a range's iterator will still give; empty: it is no such iterator.
Object left_of_range(PyObject* iterator);

// An iterator of that type which has given out so many.
Object make_iterator(PyTypeObject* type, PyObject* container, Py_ssize_t position);
// Goes on by so many elements. False with an error set.
bool advance(PyObject* iterator, Py_ssize_t elements);

}  // namespace smelt::bytecode
