// Stands last: the passes before it leave nodes behind that nobody reads any more.

#include <algorithm>

#include "graph/effects.h"
#include "passes/passes.h"

namespace smelt {
namespace {

// Whether the node has to run even if nobody reads its results. Saving the state of a generator
// draws nothing from it, so that one random op may go.
bool must_run(const Node& node) { return !node.traits.is_pure() && node.op != effects::kSaveRng; }

}  // namespace

bool remove_dead(Graph& graph, const PassOptions&) {
  std::vector<bool> live(graph.values.size());
  for (ValueId output : graph.outputs) {
    if (output >= 0) live[output] = true;
  }

  std::vector<bool> keep(graph.nodes.size());
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    keep[i] = must_run(node) || std::ranges::any_of(node.results, [&](ValueId result) {
                return result >= 0 && live[result];
              });
    if (!keep[i]) continue;
    for (const Arg& arg : node.args) each_ref(arg, [&](Ref ref) { live[ref.id] = true; });
  }

  const size_t unread_constants = std::erase_if(
      graph.constants, [&](const Constant& constant) { return !live[constant.value]; });
  const bool changed = unread_constants > 0 || std::ranges::count(keep, false) > 0;
  if (changed) graph.keep_nodes(keep);
  return changed;
}

}  // namespace smelt
