#include "passes/splitting/split_frozen.h"

#include <algorithm>

#include "graph/alias.h"
#include "passes/rewriting/frozen_values.h"

namespace smelt {
namespace {

template <class Visit>
void each_argument(const Node& node, const Visit& visit) {
  for (const Arg& arg : node.args) each_ref(arg, [&](Ref ref) { visit(ref.id); });
}

// Frozen values that a node computes, and that are read by one which is not frozen.
std::vector<ValueId> prepared_values(const Graph& graph, const std::vector<bool>& frozen) {
  const std::vector<ValueId> roots = view_roots(graph);
  std::vector<bool> taken(graph.values.size());
  std::vector<ValueId> values;
  for (const Node& node : graph.nodes) {
    const bool is_frozen = std::ranges::any_of(
        node.results, [&](ValueId result) { return result >= 0 && frozen[result]; });
    if (is_frozen) continue;
    each_argument(node, [&](ValueId value) {
      if (!frozen[value] || taken[value] || graph.values[roots[value]].node < 0) return;
      taken[value] = true;
      values.push_back(value);
    });
  }
  return values;
}

// Drops the nodes marked by `may_go` whose results nobody needs.
void drop_unneeded(Graph& graph, const std::vector<bool>& may_go) {
  std::vector<bool> needed(graph.values.size());
  for (ValueId output : graph.outputs)
    if (output >= 0) needed[output] = true;
  std::vector<bool> keep(graph.nodes.size());
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    keep[i] = !may_go[i] || std::ranges::any_of(node.results, [&](ValueId result) {
      return result >= 0 && needed[result];
    });
    if (keep[i]) each_argument(node, [&](ValueId value) { needed[value] = true; });
  }
  graph.keep_nodes(keep);
}

Graph make_preparation(const Graph& graph, const std::vector<ValueId>& outputs) {
  Graph part = graph;
  part.symbols = {};
  part.outputs = outputs;
  for (size_t i = 0; i < part.inputs.size(); ++i) {
    part.inputs[i].source = Source::argument;
    part.inputs[i].index = static_cast<int32_t>(i);
  }
  drop_unneeded(part, std::vector<bool>(part.nodes.size(), true));
  const std::vector<int32_t> uses = part.use_counts();
  std::erase_if(part.inputs, [&](const Input& input) { return uses[input.value] == 0; });
  std::erase_if(part.constants, [&](const Constant& one) { return uses[one.value] == 0; });
  part.keep_nodes(std::vector<bool>(part.nodes.size(), true));
  return part;
}

}  // namespace

std::optional<Graph> split_frozen(Graph& graph, const std::vector<bool>& inputs) {
  if (inputs.empty()) return std::nullopt;
  const std::vector<bool> frozen = frozen_values(graph, inputs);
  const std::vector<ValueId> values = prepared_values(graph, frozen);
  if (values.empty()) return std::nullopt;
  Graph part = make_preparation(graph, values);
  std::vector<bool> is_frozen;
  for (const Node& node : graph.nodes)
    is_frozen.push_back(std::ranges::any_of(
        node.results, [&](ValueId result) { return result >= 0 && frozen[result]; }));
  int32_t captured = 0;
  for (const Input& input : graph.inputs) captured += input.source == Source::captured;
  for (const ValueId value : values) {
    const TensorType type = graph.type(value);
    graph.replace_uses(value, graph.add_input(type, Source::captured, captured++));
  }
  drop_unneeded(graph, is_frozen);
  return part;
}

}  // namespace smelt
