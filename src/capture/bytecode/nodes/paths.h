// Paths to objects, in the words of the program.
#pragma once

#include <string>
#include <vector>

#include "capture/bytecode/nodes/node.h"

namespace smelt::bytecode {

// "self.layers[0].weight": how a user would write the path to the node. `code` names the slots.
std::string path_text(const std::vector<Node>& nodes, Ref ref, PyObject* code);
// "self.cache['key']": the same for a key of a dict, whether it is there or not.
std::string item_text(const std::vector<Node>& nodes, Ref dict, PyObject* key, PyObject* code);
// A variable by its name, a place of the stack as "<stack 0>".
std::string slot_name(int index, PyObject* code);
// A type, function or module by its name, anything else as show() does.
std::string constant_name(PyObject* object);

// self.__dict__['_parameters']['weight']: how nn.Module keeps its parameters and buffers.
bool is_module_state(const std::vector<Node>& nodes, Ref ref);

// The paths to the numbers that a scalar is computed from; of a path, itself.
std::vector<Ref> paths_behind(const std::vector<Node>& nodes, Ref number);

}  // namespace smelt::bytecode
