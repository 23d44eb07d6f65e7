// Kernels may store what is written to inputs in place only where nothing can fail any more
// (compile/in_place.h). So the pointwise nodes that compute it, an optimizer's update or running
// statistics, share kernels with each other only, and run when all calls are done. That delays the
// last readers of what they read: what would keep more than one tensor of its own size waiting is
// not late, and neither is a reduction, which reads much to give little.

#include "schedule/late.h"

#include <algorithm>

#include "graph/effects.h"
#include "graph/numbers.h"

namespace smelt {
namespace {

class LateNodes {
 public:
  LateNodes(const Graph& graph, const Roles& roles)
      : graph_(graph), roles_(roles), early_(graph.nodes.size()), late_(graph.nodes.size()) {}

  std::vector<bool> run() {
    const auto first_write = std::ranges::find(graph_.nodes, effects::kWrite, &Node::op);
    if (first_write == graph_.nodes.end()) return late_;
    end_ = static_cast<NodeId>(first_write - graph_.nodes.begin());
    const bool only_effects = std::all_of(first_write, graph_.nodes.end(), [](const Node& node) {
      return node.traits.effect || node.traits.view;
    });
    if (!only_effects || !find_early()) return late_;
    for (NodeId node = end_; node-- > 0;) late_[node] = is_update(node);
    for (NodeId node = 0; node < end_; ++node)
      late_[node] = late_[node] || (roles_.in_kernel(node) && !early_[node] && reads_late(node));
    drop_keepers();
    return late_;
  }

 private:
  bool fails(NodeId node) const {
    if (numbers::is_check(graph_.nodes[node].op)) return true;
    const Traits& traits = graph_.nodes[node].traits;
    if (roles_.role[node] == Role::call) return !traits.effect && !(traits.view && !traits.random);
    const bool may = roles_.role[node] == Role::element || roles_.role[node] == Role::update;
    return may && roles_.may_fail(graph_, node);
  }

  // What may fail, and all that it is computed from.
  bool find_early() {
    bool any = false;
    for (NodeId node = end_; node-- > 0;) {
      early_[node] = fails(node);
      each_reader(node, [&](NodeId reader) { early_[node] = early_[node] || early_[reader]; });
      any |= early_[node];
    }
    return any;
  }

  bool is_update(NodeId node) const {
    const Role role = roles_.role[node];
    if (early_[node] || (role != Role::element && role != Role::view)) return false;
    bool feeds = false;
    each_reader(node, [&](NodeId reader) {
      feeds |= late_[reader] || graph_.nodes[reader].op == effects::kWrite;
    });
    return feeds;
  }

  bool reads_late(NodeId node) const {
    bool found = false;
    each_argument(node, [&](ValueId value) {
      const NodeId producer = graph_.values[value].node;
      found |= producer >= 0 && late_[producer];
    });
    return found;
  }

  // Takes out the nodes that would keep several tensors waiting, and what is computed for those.
  void drop_keepers() {
    std::vector<std::vector<ValueId>> kept(graph_.nodes.size());
    for (NodeId node = 0; node < end_; ++node) {
      if (!late_[node]) continue;
      kept[node] = kept_for(node, kept);
      late_[node] = kept[node].size() <= 1;
    }
    for (NodeId node = end_; node-- > 0;)
      each_reader(node, [&](NodeId reader) {
        if (roles_.in_kernel(reader) && !late_[reader]) late_[node] = false;
      });
  }

  // Tensors that other nodes make, of the node's size or larger, and that it reads by itself or
  // through late ones.
  std::vector<ValueId> kept_for(NodeId node, const std::vector<std::vector<ValueId>>& kept) const {
    std::vector<ValueId> found;
    const Size size = graph_.type(graph_.nodes[node].results[0]).numel();
    const auto add = [&](ValueId value) {
      const Size elements = graph_.type(value).numel();
      const bool small =
          elements.is(1) || graph_.symbols.hint(elements) < graph_.symbols.hint(size);
      if (!small && std::ranges::find(found, value) == found.end()) found.push_back(value);
    };
    each_argument(node, [&](ValueId value) {
      const NodeId producer = graph_.values[value].node;
      if (producer >= 0 && late_[producer])
        std::ranges::for_each(kept[producer], add);
      else if (graph_.values[roles_.root[value]].node >= 0)
        add(roles_.root[value]);
    });
    return found;
  }

  template <class Visit>
  void each_argument(NodeId node, const Visit& visit) const {
    for (const Arg& arg : graph_.nodes[node].args) each_ref(arg, [&](Ref ref) { visit(ref.id); });
  }
  template <class Visit>
  void each_reader(NodeId node, const Visit& visit) const {
    for (const ValueId result : graph_.nodes[node].results)
      if (result >= 0)
        for (const NodeId reader : roles_.readers[result]) visit(reader);
  }

  const Graph& graph_;
  const Roles& roles_;
  std::vector<bool> early_, late_;
  NodeId end_ = 0;  // the first write
};

}  // namespace

std::vector<bool> late_nodes(const Graph& graph, const Roles& roles) {
  return LateNodes(graph, roles).run();
}

}  // namespace smelt
