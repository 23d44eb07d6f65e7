// Custom autograd functions in a log. A run of the log calls the function itself; whoever writes
// the log down op by op has no use for it, and finds here what its forward did. The backward is
// found with the passes that call it (LogHook).
//
// What forward makes and keeps is known to backward alone. A run of the log makes others, so
// that nobody else may take them.
#include <algorithm>

#include "capture/log/op_log.h"
#include "log/own_ops.h"

namespace smelt {
namespace {

bool is_plain(const LoggedCall& call) {
  return call.op != own_ops::kOpaqueCall && !own_ops::is_own(call.op) && call.number < 0 &&
         !call.has_effects;
}

}  // namespace

// The ops behind `position` as a function; nothing if they are more than that.
std::shared_ptr<LogFunction> OpLog::fold(size_t position, const std::vector<at::Tensor>& results,
                                         const Called& called) {
  auto function = std::make_shared<LogFunction>();
  function->node = called.node;
  function->materializes = called.materializes;
  const auto first = plain_.calls.begin() + static_cast<ptrdiff_t>(position);
  if (!called.node || !std::all_of(first, plain_.calls.end(), is_plain)) return nullptr;
  for (const at::Tensor& input : called.inputs)
    function->inputs.push_back(input.defined() ? find(input) : -1);
  for (const at::Tensor& result : results) {
    const LogValue value = result.defined() ? find(result) : -1;
    if (value < 0) return nullptr;
    function->outputs.push_back(value);
    function->differentiable.push_back(result.requires_grad());
  }
  function->calls = cut(position);
  return function;
}

bool OpLog::end_function(OpenCall call, size_t position, const std::vector<at::Tensor>& results,
                         const Called& called) {
  const std::shared_ptr<LogFunction> function = fold(position, results, called);
  std::vector<std::pair<c10::TensorImpl*, LogValue>> made;
  for (const auto& known : by_impl_)
    if (plain_.value(known.second).call >= static_cast<int32_t>(position)) made.push_back(known);
  call.plain.calls_back = true;
  if (!end_call(std::move(call), position, results)) return false;
  if (!function) return true;
  for (const auto& [impl, value] : made) inner_[impl] = {value, position};
  real_calls_.back().function = function;
  plain_.calls.back().args.back() = values_used(*function, plain_);
  return true;
}

std::optional<size_t> OpLog::function_of(const torch::autograd::Node* node) const {
  for (size_t i = real_calls_.size(); i-- > 0;)
    if (real_calls_[i].function && real_calls_[i].function->node.get() == node) return i;
  return std::nullopt;
}

// An output that a function has saved is another tensor for its backward.
void OpLog::meet_outputs(size_t call, const std::vector<at::Tensor>& saved) {
  for (const at::Tensor& tensor : saved) {
    if (!tensor.defined() || find(tensor) >= 0 ||
        tensor.grad_fn() != real_calls_[call].function->node)
      continue;
    by_impl_[tensor.unsafeGetTensorImpl()] = plain_.calls[call].results.at(tensor.output_nr());
    unpacked_.push_back(tensor);
  }
}

}  // namespace smelt
