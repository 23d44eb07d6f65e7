// Which nodes may fail, in the three ways in which a node is computed. An op that is called through
// the dispatcher raises as OpFacts::may_fail says; a kernel fails where its instructions do
// (loops/may_fail.h), and a run that fails is made again by calls. What must stand behind all that
// may fail, writes above all, rests on these three.
#pragma once

#include "graph/graph.h"

namespace smelt {

// May a kernel find that it can't compute the node? Asks the rule that writes the kernel: the node
// has one (can_lower, can_update).
bool may_fail_in_kernel(const Graph& graph, const Node& node);

// May a run of a compiled program end at the node without a result, whatever computes it? By its
// facts and its meaning alone: it is true at least where may_fail_in_kernel is. A node that
// addresses memory from its start is among these, as inputs need not begin there, and a number that
// is not what the graph was written down for.
bool may_end_run(const Graph& graph, const Node& node);

}  // namespace smelt
