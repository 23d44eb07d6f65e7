// A custom autograd function that was followed, as a node of PyTorch's own that runs what it did.
// So the rules by which autograd takes part in such a call (views, outputs without a gradient,
// gradients that did not come) are PyTorch's.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <atomic>
#include <vector>

namespace smelt {

class FollowedFunction : public torch::CustomClassHolder {
 public:
  virtual std::vector<at::Tensor> forward() = 0;
  // One gradient for each input.
  virtual std::vector<at::Tensor> backward(const std::vector<at::Tensor>& grads) = 0;
  // Whoever calls it later gets an Error: what it works on is gone.
  void end() { ended_ = true; }
  bool has_ended() const { return ended_; }

 private:
  std::atomic<bool> ended_{false};
};

// `materializes`: zeros take the place of gradients that did not come.
std::vector<at::Tensor> apply_followed(const c10::intrusive_ptr<FollowedFunction>& function,
                                       const std::vector<at::Tensor>& inputs,
                                       const std::vector<bool>& differentiable, bool materializes);

}  // namespace smelt
