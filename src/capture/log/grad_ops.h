// Gradients in an op log. PyTorch's dispatcher knows nothing of `.grad` and of backward passes, so
// the log has ops of smelt's own for them, which each run of the log makes again.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>

#include <vector>

#include "aten/op_info.h"

namespace smelt {

// smelt::set_grad(Tensor self, Tensor? grad) -> (): self.grad = grad, None if there is none.
const OpInfo& set_grad_op();
// smelt::backward(Tensor[] outputs, Tensor[] seeds, Tensor[] leaves, Tensor[] grads,
// bool keep_graph, bool create_graph, bool only, Tensor[] uses) -> Tensor[]: the pass that adds to
// `.grad` of all leaves, which are those that it reaches, and have `grads` before, and of those on
// the way that retain it; `only`: it goes no further than it has to for these; `uses`: what its
// hooks take (RealCall::hooks). Returns their
// `.grad` as it is then.
const OpInfo& backward_op();
// smelt::grad(Tensor[] outputs, Tensor[] seeds, Tensor[] inputs, bool keep_graph,
// bool create_graph, bool allow_unused, Tensor[] uses) -> Tensor[]: torch.autograd.grad.
const OpInfo& grad_op();
// smelt::require_grad(Tensor self, bool value) -> (): requires_grad_() of a leaf that the log made.
const OpInfo& require_grad_op();
// smelt::retain_grad(Tensor self) -> (): retain_grad() of a tensor that the log made.
const OpInfo& retain_grad_op();
// smelt::data(Tensor(a) self) -> Tensor(a): `.data`.
const OpInfo& data_op();
// smelt::expect(Scalar number, bool truth) -> (): a run for which it does not hold is none.
const OpInfo& expect_op();

// smelt::size(Tensor self, int dim) -> Scalar: a size that contents have decided.
const OpInfo& size_op();

using NodePtr = decltype(torch::autograd::Edge::function);

// What a backward pass from these outputs comes to.
struct BackwardReach {
  std::vector<at::Tensor> leaves;  // whose gradients it adds to
  std::vector<NodePtr> nodes;
};
// `only`: if there are any, on the way to these leaves.
BackwardReach reach_of(const std::vector<at::Tensor>& outputs,
                       const std::vector<at::Tensor>& only = {});

// Would a backward pass from the tensor raise that its graph has been gone through before? That
// depends on what its nodes have saved: they are asked for it, and nothing is computed. False if
// none of PyTorch's own says so.
bool is_used_up(const at::Tensor& output);

}  // namespace smelt
