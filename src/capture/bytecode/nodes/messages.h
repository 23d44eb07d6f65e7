// Where something happened, in the words of the user's own program: modules by class and name,
// lines of the user's files rather than of the libraries that were called. What is said once per
// model.
#pragma once

#include <span>
#include <string>

#include "capture/bytecode/cpython/frame.h"
#include "capture/bytecode/nodes/breaks.h"

namespace smelt::bytecode {

// Fills in where the break is. `followed`: the frames of the trace, outermost first; those that
// called them are the thread's.
void locate(Break& at, PyThreadState* thread, std::span<const Frame> followed);

// A frame from this offset on: "attention at model.py:12", "GPT2Block (transformer.h.0), called at
// train.py:31".
std::string describe_start(PyThreadState* thread, Frame root, int offset);

// The reason for which a guard failed, with the arguments of a module's call named as forward()
// names them.
std::string name_arguments(Frame root, std::string reason);

// A callable by its full name: "torch.utils.checkpoint.checkpoint", "datetime.date.isoformat".
std::string describe_callee(PyObject* callee);

// What is said when the variants are used up.
std::string limit_text(const std::string& place, int limit, const std::string& reason);

// Sets a smelt.RecompileError. `reason`: why nothing compiled fits; empty: there is nothing yet.
void raise_recompile(const std::string& place, const std::string& reason);

// A RuntimeWarning about the user's own line. False: the user wants warnings to be errors, and it
// is set.
bool warn(PyThreadState* thread, const std::string& text);

}  // namespace smelt::bytecode
