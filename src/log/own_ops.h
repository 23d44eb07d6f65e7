// Ops of smelt's own that stand in logs, where PyTorch's dispatcher has none.
#pragma once

#include "graph/op_name.h"

namespace smelt::own_ops {

inline const OpName kRequireGrad("smelt::require_grad");  // requires_grad_() of a leaf
inline const OpName kExpect("smelt::expect");  // a run for which it does not hold is none

}  // namespace smelt::own_ops
