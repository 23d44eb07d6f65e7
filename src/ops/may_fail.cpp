#include "ops/may_fail.h"

#include "graph/numbers.h"
#include "loops/may_fail.h"
#include "ops/facts.h"
#include "ops/meaning.h"
#include "ops/probe.h"

namespace smelt {

bool may_fail_in_kernel(const Graph& graph, const Node& node) {
  const UpdateRule* update = can_lower(graph, node) ? nullptr : find_meaning(node.op)->update;
  loops::Kernel kernel;
  kernel.outer =
      update ? update->form(NodeReader(graph, node)).points : graph.type(node.results[0]).sizes;
  loops::Builder builder(kernel);
  Probe probe(graph, node, builder);
  if (update)
    update->write(probe);
  else
    element_of(probe);
  return loops::may_fail(kernel);
}

bool may_end_run(const Graph& graph, const Node& node) {
  if (numbers::is_number_op(node.op) || facts_of(node.op).names_places) return true;
  const Meaning* meaning = find_meaning(node.op);
  if (!meaning || node.results.empty() || node.results[0] < 0) return false;
  if (meaning->update) return true;
  if (meaning->pattern != Pattern::pointwise) return meaning->pattern == Pattern::gather;
  return meaning->operands > 1 && is_integral(graph.type(node.results[0]).dtype);
}

}  // namespace smelt
