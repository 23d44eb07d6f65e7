#include "graph/alias.h"

#include <numeric>

#include "graph/effects.h"

namespace smelt {

ValueId viewed(const Node& node) {
  ValueId first = -1;
  for (const Arg& arg : node.args) {
    each_ref(arg, [&](Ref ref) {
      if (first < 0) first = ref.id;
    });
  }
  return first;
}

std::vector<ValueId> view_roots(const Graph& graph) {
  std::vector<ValueId> roots(graph.values.size());
  std::iota(roots.begin(), roots.end(), 0);
  for (const Node& node : graph.nodes) {
    if (!node.traits.view) continue;
    ValueId base = viewed(node);
    if (base < 0) continue;
    // Nodes stand in order, so the base's own root is final.
    for (ValueId result : node.results) {
      if (result >= 0) roots[result] = roots[base];
    }
  }
  return roots;
}

std::vector<bool> escaping_roots(const Graph& graph) {
  std::vector<ValueId> roots = view_roots(graph);
  std::vector<bool> root_escapes(graph.values.size(), false);
  for (ValueId output : graph.outputs) {
    if (output >= 0) root_escapes[roots[output]] = true;
  }
  for (const Node& node : graph.nodes) {
    // The gradient keeps the very tensor; a write copies.
    if (node.op == effects::kSetGrad) root_escapes[roots[node.args[1].get<Ref>().id]] = true;
  }
  std::vector<bool> escapes(graph.values.size());
  for (size_t value = 0; value < escapes.size(); ++value)
    escapes[value] = root_escapes[roots[value]];
  return escapes;
}

}  // namespace smelt
