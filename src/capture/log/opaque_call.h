// A call that an op log keeps as one op although the dispatcher knows nothing of it: autograd's own
// functions, or code of the user's that autograd calls. It takes tensors and gives tensors, and
// each run of the log makes it again as it is.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <vector>

#include "aten/op_info.h"

namespace smelt {

class OpaqueCall : public torch::CustomClassHolder {
 public:
  // The tensors of its result in their order; undefined ones where there is None.
  virtual std::vector<at::Tensor> run(const std::vector<at::Tensor>& tensors) const = 0;
};

// smelt::opaque_call(Tensor[] tensors, Capsule call, Tensor[] uses) -> Tensor[]; `call` is an
// OpaqueCall; `uses`: what its ops take if it is written down as such (RealCall::function).
const OpInfo& opaque_op();

}  // namespace smelt
