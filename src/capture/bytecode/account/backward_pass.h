// Backward passes that are part of a trace.
#pragma once

#include <unordered_map>
#include <unordered_set>

#include "capture/bytecode/nodes/node.h"

namespace smelt::bytecode {

struct BackwardPass {
  bool any = false;                            // there is one
  bool is_running = false;                     // now, and calls hooks
  std::unordered_map<PyObject*, Value> hooks;  // that the trace has registered
  std::unordered_set<LogValue> grads;          // tensors whose gradient the trace has set
};

}  // namespace smelt::bytecode
