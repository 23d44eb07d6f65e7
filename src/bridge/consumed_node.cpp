#include "bridge/consumed_node.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <type_traits>

namespace smelt {
namespace {

class ConsumedNode final : public torch::autograd::Node {
 public:
  torch::autograd::variable_list apply(torch::autograd::variable_list&&) override {
    TORCH_CHECK(false, torch::autograd::ERR_BACKWARD_TWICE);
  }
  std::string name() const override { return "SmeltBackward"; }
};

// Pointers of std:: or of c10, depending on the version of PyTorch.
using NodePtr = decltype(torch::autograd::Edge::function);

template <typename Pointer>
Pointer make_node() {
  if constexpr (std::is_same_v<Pointer, std::shared_ptr<torch::autograd::Node>>)
    return std::make_shared<ConsumedNode>();
  else
    return Pointer(c10::make_intrusive<ConsumedNode>());
}

}  // namespace

void mark_consumed(const at::Tensor& tensor) {
  torch::autograd::set_history(tensor, make_node<NodePtr>());
}

}  // namespace smelt
