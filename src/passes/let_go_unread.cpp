// The gradient of a pooling takes the pooled tensor for its sizes, and PyTorch keeps it for that
// from the forward to the backward. A kernel reads no element of it: zeros of that type, which no
// kernel writes to memory, stand in its place. The gradient of an attention without dropout takes the
// state of the generator, which nobody has written: zeros as well. Stands behind all passes that
// choose layouts, since these ask the types of arguments, and before remove_dead.

#include <algorithm>

#include "ops/facts.h"
#include "ops/meaning.h"
#include "passes/passes.h"
#include "passes/rewriting/node_writer.h"

namespace smelt {
namespace {

const OpName kZeros("aten::zeros");

class Rewrite {
 public:
  Rewrite(Graph& graph, const PassOptions& options)
      : graph_(graph), has_kernels_(options.has_kernels), writer_(graph) {}

  bool run() {
    std::vector<Node> nodes = std::move(graph_.nodes);
    for (Node& node : nodes) {
      if (const uint32_t unread = unread_by(node)) let_go(node, unread);
      writer_.keep(std::move(node));
    }
    writer_.finish();
    return changed_;
  }

 private:
  // A bit for each argument.
  uint32_t unread_by(const Node& node) const {
    const auto& [seed, offset, chance] = facts_of(node.op).drawn_from;
    if (chance >= 0 && static_cast<size_t>(chance) < node.args.size() &&
        node.args[chance] == Arg(0.0))
      return 1U << seed | 1U << offset;
    const Meaning* meaning = find_meaning(node.op);
    if (!meaning || meaning->unread == 0 || node.results.empty() || node.results[0] < 0 ||
        !has_kernels_(graph_.type(node.results[0]).device))
      return 0;
    return can_lower(graph_, node) || can_update(graph_, node) ? meaning->unread : 0;
  }

  void let_go(Node& node, uint32_t unread) {
    for (size_t i = 0; i < node.args.size(); ++i) {
      if ((unread >> i & 1) == 0 || !node.args[i].is<Ref>()) continue;
      const ValueId old = node.args[i].get<Ref>().id;
      const Node* maker = writer_.maker(old);
      if (maker && maker->op == kZeros) continue;
      const TensorType type = graph_.type(old);
      const auto known = std::ranges::find(zeros_, type, &std::pair<TensorType, ValueId>::first);
      const ValueId zeros = known == zeros_.end() ? zeros_like(type) : known->second;
      if (known == zeros_.end() && zeros >= 0) zeros_.emplace_back(type, zeros);
      changed_ = changed_ || zeros >= 0;
      if (zeros >= 0) node.args[i] = Ref{zeros};
    }
  }

  // -1 for a layout that they don't have.
  ValueId zeros_like(const TensorType& type) {
    const NodeWriter::Mark mark = writer_.mark();
    const ValueId made = writer_.call(kZeros.str(), {ArgList(type.sizes.begin(), type.sizes.end()),
                                                     type.dtype, None{}, type.device, false});
    if (made < 0 || graph_.type(made) == type) return made;
    writer_.forget_since(mark);
    return -1;
  }

  Graph& graph_;
  const std::function<bool(const Device&)>& has_kernels_;
  NodeWriter writer_;
  std::vector<std::pair<TensorType, ValueId>> zeros_;  // written so far
  bool changed_ = false;
};

}  // namespace

bool let_go_unread(Graph& graph, const PassOptions& options) {
  return options.has_kernels && Rewrite(graph, options).run();
}

}  // namespace smelt
