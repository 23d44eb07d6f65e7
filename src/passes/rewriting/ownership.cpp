#include "passes/rewriting/ownership.h"

#include <algorithm>

#include "graph/alias.h"
#include "graph/effects.h"

namespace smelt {

Ownership::Ownership(const Graph& graph)
    : roots(view_roots(graph)),
      handed_out(graph.values.size()),
      escapes(escaping_roots(graph)),
      mutated(graph.values.size()) {
  for (ValueId output : graph.outputs) {
    if (output >= 0) handed_out[output] = true;
  }
  for (const Node& node : graph.nodes) {
    if (node.op == effects::kSetGrad) {
      for (const Arg& arg : node.args) each_ref(arg, [&](Ref ref) { handed_out[ref.id] = true; });
    } else if (effects::is_mutator(node.op)) {
      for (const Arg& arg : node.args) {
        each_ref(arg, [&](Ref ref) { mutated[roots[ref.id]] = true; });
      }
    }
  }
  for (size_t value = 0; value < roots.size(); ++value) mutated[value] = mutated[roots[value]];
}

std::vector<bool> visible_views(const Graph& graph) {
  const std::vector<ValueId> roots = view_roots(graph);
  std::vector<bool> is_input(graph.values.size());
  for (const Input& input : graph.inputs) is_input[input.value] = true;
  std::vector<bool> shown(graph.values.size());  // an output, or what an output is a view of
  for (const ValueId output : graph.outputs) {
    if (output >= 0) shown[output] = is_input[roots[output]];
  }
  std::vector<bool> visible(graph.nodes.size());
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    const auto is_shown = [&](ValueId result) { return result >= 0 && shown[result]; };
    if (!node.traits.view || std::ranges::none_of(node.results, is_shown)) continue;
    visible[i] = node.traits.is_pure();
    shown[viewed(node)] = true;
  }
  return visible;
}

}  // namespace smelt
