// Types of Python's that code asks about.
#pragma once

#include "capture/bytecode/cpython/object.h"

namespace smelt::bytecode {

// The names that the type itself defines.
Object own_dict(PyTypeObject* type);
// A collections.deque, and no object of a subclass.
bool is_deque(PyObject* object);
// A re.Match.
bool is_match(PyObject* object);

}  // namespace smelt::bytecode
