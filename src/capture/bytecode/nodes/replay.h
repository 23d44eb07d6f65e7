// Doing again what a trace did to Python objects.
#pragma once

#include <span>

#include "capture/bytecode/nodes/node.h"

namespace smelt::bytecode {

// `inputs`: the objects of step.inputs, borrowed; nullptr for none. One more may be written in
// front of inputs[1] for the time of a call. The result, None for a step that has none; empty with
// an error set.
Object replay(const Step& step, std::span<PyObject*> inputs);

// Another frozenset, slice, range or torch.Size like this one; empty with an error set.
Object copy_of(PyObject* constant);

}  // namespace smelt::bytecode
