#include "bridge/autograd/consumed_node.h"

#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>

#include "bridge/autograd/make_node.h"

namespace smelt {
namespace {

class ConsumedNode final : public torch::autograd::Node {
 public:
  torch::autograd::variable_list apply(torch::autograd::variable_list&&) override {
    TORCH_CHECK(false, torch::autograd::ERR_BACKWARD_TWICE);
  }
  std::string name() const override { return "SmeltBackward"; }
};

}  // namespace

void mark_consumed(const at::Tensor& tensor) {
  torch::autograd::set_history(tensor, make_node<ConsumedNode>());
}

}  // namespace smelt
