#include "capture/log/autograd_nodes.h"

#include <algorithm>
#include <utility>

namespace smelt {

void AutogradNodes::note_hook(NodePtr node, uint32_t output, LogValue tensor) {
  hooks_.push_back({std::move(node), output, tensor});
}

LogValue AutogradNodes::hooked(const torch::autograd::Node* node, uint32_t output) const {
  for (const Hook& known : hooks_)
    if (known.node.get() == node && known.output == output) return known.tensor;
  return -1;
}

void AutogradNodes::retain(NodePtr node, LogValue tensor) {
  retained_.push_back({std::move(node), tensor});
}

std::vector<LogValue> AutogradNodes::retained(const std::vector<NodePtr>& nodes) const {
  std::vector<LogValue> found;
  for (const Retained& known : retained_)
    if (std::ranges::find(nodes, known.node) != nodes.end()) found.push_back(known.tensor);
  return found;
}

bool AutogradNodes::is_retained(const NodePtr& node) const {
  return std::ranges::find(retained_, node, &Retained::node) != retained_.end();
}

void AutogradNodes::consume(const std::vector<NodePtr>& nodes, size_t call) {
  for (const NodePtr& node : nodes) consumed_.push_back({node, call});
}

bool AutogradNodes::is_consumed(const NodePtr& node, size_t calls) const {
  return std::ranges::any_of(
      consumed_, [&](const Consumed& known) { return known.call < calls && known.node == node; });
}

void AutogradNodes::rewind(size_t position, const std::function<bool(LogValue)>& is_gone) {
  std::erase_if(consumed_, [&](const Consumed& known) { return known.call >= position; });
  std::erase_if(retained_, [&](const Retained& known) { return is_gone(known.tensor); });
}

}  // namespace smelt
