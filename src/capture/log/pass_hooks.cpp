// Hooks that a backward pass calls, in a log. What they do to gradients is kept with the pass, as
// ops on values of the log: whoever writes the pass down op by op runs them where PyTorch calls the
// hooks. A run of the log has PyTorch call the hooks themselves.
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <unordered_set>

#include "capture/log/op_log.h"
#include "log/own_ops.h"

namespace smelt {

void OpLog::note_registration(const at::Tensor& tensor) {
  const torch::autograd::Edge edge = torch::autograd::impl::gradient_edge(tensor);
  nodes_.note_hook(edge.function, edge.input_nr, find(tensor));
  plain_.calls.back().registers_hook = true;
}

// A gradient may be one that the log knows already: the one that the pass was given, or that other
// hooks were. What it stands for here is the pass's business.
bool OpLog::begin_hook(LogHook hook, const std::vector<at::Tensor>& grads) {
  if (open_hook_) {
    give_up(OpTrouble::Kind::autograd, "a hook inside of another");
    return false;
  }
  OpenHook open{
      std::move(hook), plain_.calls.size(), static_cast<LogValue>(plain_.values.size()), {}};
  for (const at::Tensor& grad : grads) {
    LogValue value = grad.defined() ? find(grad) : -1;
    if (grad.defined() && value < open.first) {
      if (value >= 0) open.hidden.emplace_back(grad.unsafeGetTensorImpl(), value);
      value = add_value(grad, LoggedValue::Kind::result);
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
  for (const LoggedCall& call : hook.calls.plain) {
    if (call.random) return refuse("a hook that draws random numbers");
    if (call.number >= 0 || call.op == own_ops::kExpect)
      return refuse("a hook that reads a number");
    if (own_ops::is_custom(call.op)) return refuse("a hook that calls custom ops or autograd");
    for (const LogValue written : call.written) {
      const int32_t memory = plain_.value(written).memory;
      const std::vector<LogValue>& there = memory_.values_on(memory);
      if (is_input_memory(memory) || std::any_of(there.begin(), there.end(), is_older))
        return refuse("a hook that changes a tensor in place");
    }
  }
  return true;
}

void OpLog::abandon_hook() {
  pause();
  if (!open_hook_) return;
  const LogValue first = open_hook_->first;
  const size_t position = std::min(plain_.calls.size(), open_hook_->position);
  plain_.calls.resize(position);
  real_calls_.resize(position);
  // Nobody else may meet these.
  forget_results_behind(position);
  std::erase_if(by_impl_, [&](const auto& known) {
    return known.second >= first && plain_.value(known.second).kind != LoggedValue::Kind::input;
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
  hook.calls = cut(open_hook_->position);
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

// The values that calls take and do not make.
class Uses {
 public:
  explicit Uses(const CallLog& log) : log_(log) {}
  void make(LogValue value) { known_.insert(value); }
  void use(LogValue value) {
    if (value >= 0 && !log_.value(value).inner && known_.insert(value).second)
      list_.emplace_back(Ref{value});
  }
  void use(const InnerCalls& calls) {
    for (const LoggedCall& call : calls.plain) {
      each_argument(call, [&](LogValue value) { use(value); });
      for (const LogValue made : call.results) make(made);
    }
  }
  ArgList list() && { return std::move(list_); }

 private:
  const CallLog& log_;
  ArgList list_;
  std::unordered_set<LogValue> known_;
};

}  // namespace

ArgList values_used(const std::vector<LogHook>& hooks, const CallLog& log) {
  Uses uses(log);
  for (const LogHook& hook : hooks) {
    uses.use(hook.tensor);
    for (const LogValue grad : hook.grads) uses.make(grad);
    uses.use(hook.calls);
    for (const LogValue result : hook.results) uses.use(result);
  }
  return std::move(uses).list();
}

ArgList values_used(const LogFunction& function, const CallLog& log) {
  Uses uses(log);
  for (const LogValue input : function.inputs) uses.use(input);
  uses.use(function.calls);
  for (const LogValue output : function.outputs) uses.use(output);
  return std::move(uses).list();
}

}  // namespace smelt
