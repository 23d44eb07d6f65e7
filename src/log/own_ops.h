// Ops of smelt's own that stand in logs, where PyTorch's dispatcher has none. capture/log/grad_ops.h
// and opaque_call.h have their schemas.
#pragma once

#include "graph/op_name.h"
#include "ops/facts.h"

namespace smelt::own_ops {

inline const OpName kSetGrad("smelt::set_grad");          // self.grad = grad
inline const OpName kBackward("smelt::backward");         // a pass that adds to `.grad` of leaves
inline const OpName kGrad("smelt::grad");                 // torch.autograd.grad
inline const OpName kRequireGrad("smelt::require_grad");  // requires_grad_() of a leaf
inline const OpName kRetainGrad("smelt::retain_grad");    // retain_grad() of what the log made
inline const OpName kData("smelt::data");                 // `.data`
inline const OpName kExpect("smelt::expect");           // a run for which it does not hold is none
inline const OpName kSize("smelt::size");               // a size that contents have decided
inline const OpName kOpaqueCall("smelt::opaque_call");  // of code that no op is known of

// Arguments of a backward pass, and of torch.autograd.grad: what it starts from, gradients of that,
// and the leaves or inputs whose gradients it computes.
inline constexpr size_t kLeaves = 2;
inline constexpr size_t kAllowUnused = 5;  // of the latter: None is an answer too

inline bool changes_gradients(OpName op) { return op == kSetGrad || op == kBackward; }
// Of which all is known.
inline bool is_own(OpName op) {
  return changes_gradients(op) || op == kGrad || op == kRequireGrad || op == kRetainGrad ||
         op == kData || op == kExpect || op == kSize;
}
// Not PyTorch's own.
inline bool is_custom(OpName op) { return library_of(op) != Library::aten; }

}  // namespace smelt::own_ops
