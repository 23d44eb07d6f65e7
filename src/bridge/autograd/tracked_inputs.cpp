#include "bridge/autograd/tracked_inputs.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <numeric>
#include <tuple>
#include <unordered_map>

#include "capture/log/grad_ops.h"

namespace smelt {

ReachBehind reach_behind(std::span<const at::Tensor> inputs,
                         const std::vector<size_t>& candidates) {
  ReachBehind reach{std::vector<bool>(candidates.size()), false};
  std::vector<at::Tensor> computed;
  for (const at::Tensor& input : inputs)
    if (input.defined() && input.grad_fn()) computed.push_back(input);
  if (computed.empty()) return reach;
  std::unordered_multimap<const torch::autograd::Node*, size_t> wanted;
  for (size_t i = 0; i < candidates.size(); ++i)
    if (const at::Tensor& input = inputs[candidates[i]]; input.defined() && input.requires_grad())
      wanted.emplace(torch::autograd::impl::gradient_edge(input).function.get(), i);
  for (const at::Tensor& input : computed) {
    const NodePtr own = input.grad_fn();
    for (const NodePtr& node : reach_of({input}).nodes) {
      if (node == own) continue;
      const auto [first, last] = wanted.equal_range(node.get());
      for (auto at = first; at != last; ++at) reach.known[at->second] = true;
      const bool is_leaf = dynamic_cast<torch::autograd::AccumulateGrad*>(node.get()) != nullptr;
      reach.others = reach.others || (is_leaf && first == last);
    }
  }
  return reach;
}

// An accumulation is run as soon as its gradient is whole: behind the oldest node that has an edge
// to it, in the order of that node's edges.
std::vector<size_t> order_of_arrival(const std::vector<at::Tensor>& outputs,
                                     const std::vector<at::Tensor>& inputs) {
  using Time = std::tuple<uint64_t, uint64_t, size_t>;  // less: later
  std::unordered_multimap<const torch::autograd::Node*, size_t> wanted;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].defined() && inputs[i].requires_grad())
      wanted.emplace(torch::autograd::impl::gradient_edge(inputs[i]).function.get(), i);
  std::vector<Time> times;
  for (size_t i = 0; i < inputs.size(); ++i)
    times.emplace_back(UINT64_MAX, UINT64_MAX, inputs.size() - i);
  for (const NodePtr& node : reach_of(outputs).nodes)
    for (size_t edge = 0; edge < node->num_outputs(); ++edge) {
      const auto [first, last] = wanted.equal_range(node->next_edge(edge).function.get());
      for (auto at = first; at != last; ++at) {
        const Time time{node->sequence_nr(), UINT64_MAX - edge, inputs.size() - at->second};
        times[at->second] = std::min(times[at->second], time);
      }
    }
  std::vector<size_t> sorted(inputs.size()), places(inputs.size());
  std::iota(sorted.begin(), sorted.end(), 0);
  std::ranges::sort(sorted, [&](size_t a, size_t b) { return times[a] > times[b]; });
  for (size_t place = 0; place < sorted.size(); ++place) places[sorted[place]] = place;
  return places;
}

bool is_hooked(const at::Tensor& tensor) {
  namespace impl = torch::autograd::impl;
  return tensor.defined() && tensor.requires_grad() &&
         (!impl::hooks(tensor).empty() || impl::post_acc_grad_hooks(tensor));
}

}  // namespace smelt
