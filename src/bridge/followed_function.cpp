#include "bridge/followed_function.h"

#include <torch/csrc/autograd/custom_function.h>

#include "base/error.h"

namespace smelt {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kName = "function";

struct Applied : torch::autograd::Function<Applied> {
  static variable_list forward(AutogradContext* context,
                               const c10::intrusive_ptr<FollowedFunction>& function, at::TensorList,
                               const std::vector<bool>& differentiable, bool materializes) {
    variable_list outputs = function->forward();
    variable_list constant;
    for (size_t i = 0; i < outputs.size(); ++i)
      if (!differentiable[i]) constant.push_back(outputs[i]);
    context->mark_non_differentiable(constant);
    context->set_materialize_grads(materializes);
    context->saved_data[kName] = c10::IValue::make_capsule(function);
    return outputs;
  }

  // As many as apply() has arguments.
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const auto function = c10::static_intrusive_pointer_cast<FollowedFunction>(
        context->saved_data[kName].toCapsule());
    if (function->has_ended()) throw Error("a backward pass through what has been written down");
    variable_list results{at::Tensor()};
    for (at::Tensor& grad : function->backward(grads)) results.push_back(std::move(grad));
    results.resize(results.size() + 2);
    return results;
  }
};

}  // namespace

std::vector<at::Tensor> apply_followed(const c10::intrusive_ptr<FollowedFunction>& function,
                                       const std::vector<at::Tensor>& inputs,
                                       const std::vector<bool>& differentiable, bool materializes) {
  return Applied::apply(function, at::TensorList(inputs), differentiable, materializes);
}

}  // namespace smelt
