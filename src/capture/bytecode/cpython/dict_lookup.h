// Lookups in dicts that run no code of the user's.
#pragma once

#include <Python.h>

namespace smelt::bytecode {

// dict[key] by the dict's storage, borrowed; nullptr if there is none.
PyObject* find_item(PyObject* dict, PyObject* key, Py_hash_t hash);
// That the dict has no such key. False as well where an __eq__ of the user's would have to say.
bool is_absent(PyObject* dict, PyObject* key, Py_hash_t hash);

}  // namespace smelt::bytecode
