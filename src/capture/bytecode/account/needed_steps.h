// Which steps of a trace a cached call has to do: those that change what was there before, and those
// that make what the exit needs.
#pragma once

#include <vector>

#include "capture/bytecode/nodes/node.h"

namespace smelt::bytecode {

// Made by the trace: by a step, or by a tensor op.
bool is_made(const Node& node);
// The input that a step changes: a method of a builtin type changes nothing but its object.
size_t changed_by(const Step& step);
// torch._C._set_grad_enabled(False) and the like, and torch.device.__enter__.
bool is_switch(const Step& step);

// By step. An object that is needed needs the step that makes it and all that change it.
std::vector<bool> needed_steps(const std::vector<Node>& nodes, const std::vector<Step>& steps,
                               const Exit& exit);

}  // namespace smelt::bytecode
