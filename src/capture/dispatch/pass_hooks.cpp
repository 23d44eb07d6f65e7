// Hooks that a backward pass calls, in a log. What they do to gradients is kept with the pass, as
// ops on values of the log: whoever writes the pass down op by op runs them where PyTorch calls the
// hooks. A run of the log has PyTorch call the hooks themselves.
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <unordered_set>

#include "capture/dispatch/op_log.h"

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

bool OpLog::begin_hook(LogValue tensor, const at::Tensor& grad) {
  if (const LogValue known = find(grad); known >= 0 || open_hook_) {
    give_up(OpTrouble::Kind::autograd, "a hook on a gradient that is used otherwise");
    return false;
  }
  OpenHook open;
  open.hook.tensor = tensor;
  open.hook.grad = add_value(grad, LoggedTensor::Kind::result);
  open.position = items_.size();
  open_hook_ = std::move(open);
  resume();
  return true;
}

// Its ops change nothing but what they have made, draw nothing, and read no number.
bool OpLog::is_repeatable(const LogHook& hook) {
  const auto refuse = [&](const char* what) {
    give_up(OpTrouble::Kind::autograd, what);
    return false;
  };
  for (const LogItem& item : hook.items) {
    if (item.random) return refuse("a hook that draws random numbers");
    if (item.number >= 0 || item.op == &expect_op()) return refuse("a hook that reads a number");
    if (item.op->is_custom) return refuse("a hook that calls custom ops or autograd");
    for (const LogValue written : item.written) {
      const std::vector<LogValue>& there = in_memory_[values_[written].memory];
      if (is_input_memory(values_[written].memory) ||
          std::any_of(there.begin(), there.end(), [&](LogValue id) { return id <= hook.grad; }))
        return refuse("a hook that changes a tensor in place");
    }
  }
  return true;
}

void OpLog::abandon_hook() {
  pause();
  if (!open_hook_) return;
  const LogValue first = open_hook_->hook.grad;
  items_.resize(std::min(items_.size(), open_hook_->position));
  // Nobody else may meet these.
  std::erase_if(by_impl_, [&](const auto& known) {
    return known.second >= first && values_[known.second].kind != LoggedTensor::Kind::input;
  });
  open_hook_.reset();
}

bool OpLog::end_hook(const at::Tensor& result) {
  if (!open_hook_) return false;
  LogHook hook = std::move(open_hook_->hook);
  hook.result = result.defined() ? find(result) : hook.grad;
  const auto first = items_.begin() + static_cast<ptrdiff_t>(open_hook_->position);
  hook.items.assign(std::make_move_iterator(first), std::make_move_iterator(items_.end()));
  abandon_hook();
  if (hook.result < 0) {
    give_up(OpTrouble::Kind::foreign_tensor, "the result of a hook");
    return false;
  }
  if (!is_repeatable(hook)) return false;
  hooks_.push_back(std::move(hook));
  return true;
}

// The values of the log that hooks take.
LogSlot hook_uses(const std::vector<LogHook>& hooks, uint32_t argument) {
  LogSlot slot;
  slot.argument = argument;
  slot.is_list = true;
  std::unordered_set<LogValue> known;
  const auto use = [&](LogValue value) {
    if (value >= 0 && known.insert(value).second) slot.values.push_back(value);
  };
  for (const LogHook& hook : hooks) {
    use(hook.tensor);
    known.insert(hook.grad);
    for (const LogItem& item : hook.items) {
      for (const LogSlot& taken : item.slots)
        for (const LogValue value : taken.values) use(value);
      for (const LogValue made : item.results) known.insert(made);
    }
    use(hook.result);
  }
  return slot;
}

}  // namespace smelt
