// Custom autograd functions in a log. A run of the log calls the function itself; whoever writes
// the log down op by op has no use for it, and finds here what its forward did. The backward is
// found with the passes that call it (LogHook).
//
// What forward makes and keeps is known to backward alone. A run of the log makes others, so
// that nobody else may take them.
#include <algorithm>

#include "capture/log/op_log.h"

namespace smelt {
namespace {

bool is_plain(const LogItem& item) {
  return item.op != &opaque_op() && !is_own_op(*item.op) && item.number < 0 && !item.has_effects;
}

}  // namespace

// The ops behind `position` as a function; nothing if they are more than that.
std::shared_ptr<LogFunction> OpLog::fold(size_t position, const std::vector<at::Tensor>& results,
                                         const Called& called) {
  auto function = std::make_shared<LogFunction>();
  function->node = called.node;
  function->materializes = called.materializes;
  const auto first = items_.begin() + static_cast<ptrdiff_t>(position);
  if (!called.node || !std::all_of(first, items_.end(), is_plain)) return nullptr;
  for (const at::Tensor& input : called.inputs)
    function->inputs.push_back(input.defined() ? find(input) : -1);
  for (const at::Tensor& result : results) {
    const LogValue value = result.defined() ? find(result) : -1;
    if (value < 0) return nullptr;
    function->outputs.push_back(value);
    function->differentiable.push_back(result.requires_grad());
  }
  function->items.assign(first, items_.end());
  return function;
}

bool OpLog::end_function(LogItem item, size_t position, const std::vector<at::Tensor>& results,
                         const Called& called) {
  const std::shared_ptr<LogFunction> function = fold(position, results, called);
  std::vector<std::pair<c10::TensorImpl*, LogValue>> made;
  for (const auto& known : by_impl_) {
    const LoggedTensor& value = values_[known.second];
    if (value.kind == LoggedTensor::Kind::result && value.item >= position) made.push_back(known);
  }
  if (!end_call(std::move(item), position, results)) return false;
  items_.back().applies_function = true;
  if (!function) return true;
  for (const auto& [impl, value] : made) {
    values_[value].inner = true;
    values_[value].item = position;
    inner_[impl] = value;
  }
  LogItem& kept = items_.back();
  kept.function = function;
  kept.slots.back() = function_uses(*function, kept.slots.back().argument, values_);
  return true;
}

std::optional<size_t> OpLog::function_of(const torch::autograd::Node* node) const {
  for (size_t i = items_.size(); i-- > 0;)
    if (items_[i].function && items_[i].function->node.get() == node) return i;
  return std::nullopt;
}

// An output that a function has saved is another tensor for its backward.
void OpLog::meet_outputs(const LogItem& item, const std::vector<at::Tensor>& saved) {
  for (const at::Tensor& tensor : saved) {
    if (!tensor.defined() || find(tensor) >= 0 || tensor.grad_fn() != item.function->node) continue;
    by_impl_[tensor.unsafeGetTensorImpl()] = item.results.at(tensor.output_nr());
    unpacked_.push_back(tensor);
  }
}

}  // namespace smelt
