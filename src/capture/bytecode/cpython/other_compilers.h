// PyTorch's own compiler in the same process. Once it has been used, functions of torch's are
// wrapped by it, and so is whatever the user has given to torch.compile. What smelt makes of a
// program is the same before and after: it looks behind these wrappers.
#pragma once

#include "capture/bytecode/cpython/object.h"

namespace smelt::bytecode {

// What the Python function calls besides its own business with that compiler; nullptr if it is no
// such wrapper, or one that the user has put there to be left alone. Borrowed from the function.
PyObject* behind_wrapper(PyObject* function);
// torch.compiler.disable has marked the function, which is the user's.
bool is_disabled_elsewhere(PyObject* function);
// A note to that compiler, which does nothing for anybody else.
bool is_note_to_compiler(PyObject* function);
// Its own books about modules, kept by callbacks of weak references: nothing of the program's.
bool is_bookkeeping_of_compiler(PyObject* function);
// Plain code of its, around what it has compiled.
bool is_plain_code_of_compiler(PyObject* function);

}  // namespace smelt::bytecode
