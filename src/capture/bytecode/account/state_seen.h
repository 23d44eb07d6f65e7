// State outside of objects that a trace has read or changed.
#pragma once

#include <unordered_map>
#include <unordered_set>

#include "capture/bytecode/nodes/node.h"

namespace smelt::bytecode {

struct StateSeen {
  std::unordered_map<PyObject*, Value> context_values;  // by ContextVar, or open Token: what is set
  bool asked_tracing_state = false;                     // torch._C._get_tracing_state() gave None
  int transforms = 0;  // levels of function transforms, and of forward-mode autograd, that are open
  bool forbids_forward_mode = false;        // torch._C._set_fwd_grad_enabled(False)
  bool bans_saved_hooks = false;            // the trace has forbidden saved tensor hooks itself
  std::unordered_set<const void*> changed;  // groups of torch_state.cpp that it has changed
};

}  // namespace smelt::bytecode
