// Hooks that a backward pass calls, in a log. What they do to gradients is kept with the pass, as
// ops on values of the log: whoever writes the pass down op by op runs them where PyTorch calls the
// hooks. A run of the log has PyTorch call the hooks themselves.
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <unordered_set>

#include "capture/log/op_log.h"

namespace smelt {

void OpLog::note_registration(const at::Tensor& tensor) {
  const torch::autograd::Edge edge = torch::autograd::impl::gradient_edge(tensor);
  registrations_.push_back({edge.function, edge.input_nr, find(tensor)});
  items_.back().registers_hook = true;
}

LogValue OpLog::registered_on(const torch::autograd::Node* node, uint32_t output) const {
  for (const Registration& known : registrations_)
    if (known.node.get() == node && known.output == output) return known.tensor;
  return -1;
}

// A gradient may be one that the log knows already: the one that the pass was given, or that other
// hooks were. What it stands for here is the pass's business.
bool OpLog::begin_hook(LogHook hook, const std::vector<at::Tensor>& grads) {
  if (open_hook_) {
    give_up(OpTrouble::Kind::autograd, "a hook inside of another");
    return false;
  }
  OpenHook open{std::move(hook), items_.size(), static_cast<LogValue>(values_.size()), {}};
  for (const at::Tensor& grad : grads) {
    LogValue value = grad.defined() ? find(grad) : -1;
    if (grad.defined() && value < open.first) {
      if (value >= 0) open.hidden.emplace_back(grad.unsafeGetTensorImpl(), value);
      value = add_value(grad, LoggedTensor::Kind::result);
    }
    open.hook.grads.push_back(value);
  }
  open_hook_ = std::move(open);
  resume();
  return true;
}

// Its ops change nothing but what they have made, draw nothing, and read no number.
bool OpLog::is_repeatable(const LogHook& hook, LogValue first) {
  const auto refuse = [&](const char* what) {
    give_up(OpTrouble::Kind::autograd, what);
    return false;
  };
  const auto is_given = [&](LogValue id) {
    return std::find(hook.grads.begin(), hook.grads.end(), id) != hook.grads.end();
  };
  const auto is_older = [&](LogValue id) { return id < first || is_given(id); };
  for (const LogItem& item : hook.items) {
    if (item.random) return refuse("a hook that draws random numbers");
    if (item.number >= 0 || item.op == &expect_op()) return refuse("a hook that reads a number");
    if (item.op->is_custom) return refuse("a hook that calls custom ops or autograd");
    for (const LogValue written : item.written) {
      const std::vector<LogValue>& there = in_memory_[values_[written].memory];
      if (is_input_memory(values_[written].memory) ||
          std::any_of(there.begin(), there.end(), is_older))
        return refuse("a hook that changes a tensor in place");
    }
  }
  return true;
}

void OpLog::abandon_hook() {
  pause();
  if (!open_hook_) return;
  const LogValue first = open_hook_->first;
  items_.resize(std::min(items_.size(), open_hook_->position));
  // Nobody else may meet these.
  std::erase_if(by_impl_, [&](const auto& known) {
    return known.second >= first && values_[known.second].kind != LoggedTensor::Kind::input;
  });
  for (const auto& [impl, value] : open_hook_->hidden) by_impl_[impl] = value;
  open_hook_.reset();
}

bool OpLog::end_hook(const std::vector<at::Tensor>& results) {
  if (!open_hook_) return false;
  LogHook hook = std::move(open_hook_->hook);
  const LogValue own = open_hook_->first;
  bool is_known = true;
  for (const at::Tensor& result : results) {
    hook.results.push_back(result.defined() ? find(result) : -1);
    is_known = is_known && (!result.defined() || hook.results.back() >= 0);
  }
  const auto first = items_.begin() + static_cast<ptrdiff_t>(open_hook_->position);
  hook.items.assign(std::make_move_iterator(first), std::make_move_iterator(items_.end()));
  abandon_hook();
  if (!is_known) {
    give_up(OpTrouble::Kind::foreign_tensor, "the result of a hook");
    return false;
  }
  if (!is_repeatable(hook, own)) return false;
  hooks_.push_back(std::move(hook));
  return true;
}

namespace {

// The values that items take and do not make.
class Uses {
 public:
  Uses(uint32_t argument, const std::vector<LoggedTensor>& values) : values_(values) {
    slot_.argument = argument;
    slot_.is_list = true;
  }
  void make(LogValue value) { known_.insert(value); }
  void use(LogValue value) {
    if (value >= 0 && !values_[value].inner && known_.insert(value).second)
      slot_.values.push_back(value);
  }
  void use(const std::vector<LogItem>& items) {
    for (const LogItem& item : items) {
      each_argument(item, [&](LogValue value) { use(value); });
      for (const LogValue made : item.results) make(made);
    }
  }
  LogSlot slot() && { return std::move(slot_); }

 private:
  LogSlot slot_;
  std::unordered_set<LogValue> known_;
  const std::vector<LoggedTensor>& values_;
};

}  // namespace

LogSlot hook_uses(const std::vector<LogHook>& hooks, uint32_t argument,
                  const std::vector<LoggedTensor>& values) {
  Uses uses(argument, values);
  for (const LogHook& hook : hooks) {
    uses.use(hook.tensor);
    for (const LogValue grad : hook.grads) uses.make(grad);
    uses.use(hook.items);
    for (const LogValue result : hook.results) uses.use(result);
  }
  return std::move(uses).slot();
}

LogSlot function_uses(const LogFunction& function, uint32_t argument,
                      const std::vector<LoggedTensor>& values) {
  Uses uses(argument, values);
  for (const LogValue input : function.inputs) uses.use(input);
  uses.use(function.items);
  for (const LogValue output : function.outputs) uses.use(output);
  return std::move(uses).slot();
}

}  // namespace smelt
