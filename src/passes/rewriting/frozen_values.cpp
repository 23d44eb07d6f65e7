#include "passes/rewriting/frozen_values.h"

#include <algorithm>

#include "graph/effects.h"
#include "passes/rewriting/ownership.h"

namespace smelt {
namespace {

bool is_known(const TensorType& type) {
  return type.device.is_cpu() && all_known(type.sizes) && all_known(type.strides) &&
         type.offset.is_known();
}

bool reads_only(const Node& node, const std::vector<bool>& frozen) {
  bool any = false, all = true;
  for (const Arg& arg : node.args)
    each_ref(arg, [&](Ref ref) {
      any = true;
      all = all && frozen[ref.id];
    });
  return any && all;
}

}  // namespace

std::vector<bool> frozen_values(const Graph& graph, const std::vector<bool>& inputs) {
  std::vector<bool> frozen(graph.values.size());
  for (size_t i = 0; i < graph.inputs.size() && i < inputs.size(); ++i) {
    const ValueId input = graph.inputs[i].value;
    frozen[input] = inputs[i] && is_known(graph.type(input));
  }
  for (const Node& node : graph.nodes)
    if (node.op == effects::kWrite) frozen[node.args[0].get<Ref>().id] = false;
  for (const Constant& constant : graph.constants)
    frozen[constant.value] = is_known(graph.type(constant.value));
  const Ownership own(graph);
  for (const Node& node : graph.nodes) {
    if (!node.traits.is_pure() || effects::is_mutator(node.op) || !reads_only(node, frozen))
      continue;
    const bool may_be_kept = std::ranges::all_of(node.results, [&](ValueId result) {
      return result < 0 || (is_known(graph.type(result)) && !own.escapes[result] &&
                            !own.mutated[result] && !own.handed_out[result]);
    });
    for (ValueId result : node.results)
      if (result >= 0) frozen[result] = may_be_kept;
  }
  return frozen;
}

bool is_frozen(const std::vector<bool>& frozen, const Arg& arg) {
  return arg.is<Ref>() && static_cast<size_t>(arg.get<Ref>().id) < frozen.size() &&
         frozen[arg.get<Ref>().id];
}

}  // namespace smelt
