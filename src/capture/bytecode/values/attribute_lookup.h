// What reading and storing attributes share.
#pragma once

#include "capture/bytecode/values/operations.h"

namespace smelt::bytecode {

// A method in C as a class has it, also one taken for a special method: `__getattr__ = dict.get`.
bool is_method_in_c(PyObject* found);
// The instance's __dict__, made if there is none yet; nullptr if the type has none.
Object dict_of(PyObject* object);
// What was found in a field of an object, with its place.
Value field(Trace& trace, Value object, PyObject* name, PyObject* found);

// An object of threading.local.
bool is_thread_local(PyObject* object);
// Its __dict__ of this thread; *ref is the place of it.
Object thread_dict(Trace& trace, Value local, Ref* ref);
// The attribute is in that dict, and nothing of the class stands in front of it.
bool has_in_thread_only(Trace& trace, Value local, PyObject* name);

}  // namespace smelt::bytecode
