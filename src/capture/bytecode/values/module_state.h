// What nn.Module has in its three dicts: parameters, buffers, modules.
#pragma once

#include "capture/bytecode/values/operations.h"

namespace smelt::bytecode {

// What nn.Module.__getattr__, if that is the getter, finds among the parameters,
// buffers and modules. False: nothing was done.
bool get_module_state(Trace& trace, Value module, PyObject* name, Value getter, Result* result);

// The code of a method of nn.Module's own; nullptr: it is none that can be read.
PyCodeObject* code_of_module(const char* method);
// A dict or an OrderedDict, and no subclass of the user's.
bool is_plain_dict(PyObject* object);
// The object's own dict; empty: it is not the usual one.
Object plain_dict_of(PyObject* object);

}  // namespace smelt::bytecode
