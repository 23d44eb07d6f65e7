#include "bridge/autograd/time_pass.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>

#include <atomic>
#include <memory>
#include <unordered_set>
#include <utility>

#include "diagnostics/clock.h"

namespace smelt {
namespace {

// Shared by the nodes at which passes can arrive: the first of them starts the clock.
struct Stopwatch {
  std::function<void(int64_t)> spent;
  std::atomic<bool> runs = false;
};

class StartHook final : public torch::autograd::FunctionPreHook {
 public:
  explicit StartHook(std::shared_ptr<Stopwatch> watch) : watch_(std::move(watch)) {}
  torch::autograd::variable_list operator()(
      const torch::autograd::variable_list& gradients) override {
    if (watch_->runs.exchange(true)) return gradients;
    torch::autograd::Engine::get_default_engine().queue_callback(
        [watch = watch_, start = now_ns()] {
          watch->spent(now_ns() - start);
          watch->runs = false;
        });
    return gradients;
  }

 private:
  std::shared_ptr<Stopwatch> watch_;
};

}  // namespace

bool time_passes(const std::vector<at::Tensor>& tensors, std::function<void(int64_t)> spent) {
  auto watch = std::make_shared<Stopwatch>();
  watch->spent = std::move(spent);
  std::unordered_set<torch::autograd::Node*> nodes;
  for (const at::Tensor& tensor : tensors) {
    const auto& node = tensor.defined() ? tensor.grad_fn() : nullptr;
    if (node && nodes.insert(node.get()).second)
      node->add_pre_hook(std::make_unique<StartHook>(watch));
  }
  return !nodes.empty();
}

bool is_pass_timer(const torch::autograd::FunctionPreHook& hook) {
  return dynamic_cast<const StartHook*>(&hook) != nullptr;
}

}  // namespace smelt
