// Function transforms of torch.func (vmap, grad, jvp), which PyTorch calls functorch: an op that is
// called under one goes through its levels from the innermost to the outermost one, each of which
// unwraps its tensors and asks the dispatcher anew. What comes out at the bottom are ops on plain
// tensors.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace smelt {

// A tensor as one of the levels has it, that of vmap with a dimension hidden.
inline bool is_functorch_wrapper(const at::Tensor& tensor) {
  return tensor.key_set().has_any(c10::DispatchKeySet({c10::DispatchKey::FuncTorchBatched,
                                                       c10::DispatchKey::FuncTorchGradWrapper,
                                                       c10::DispatchKey::BatchedNestedTensor}));
}

// Some level is left that ops of this thread go through.
inline bool is_under_transform() {
  return c10::impl::tls_local_dispatch_key_set().included_.has_any(
      c10::DispatchKeySet({c10::DispatchKey::FuncTorchDynamicLayerFrontMode,
                           c10::DispatchKey::FuncTorchDynamicLayerBackMode}));
}

}  // namespace smelt
