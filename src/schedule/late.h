// Nodes that are computed last, because their kernels change tensors of the caller in place.
#pragma once

#include <vector>

#include "graph/graph.h"
#include "schedule/roles.h"

namespace smelt {

// By node: pointwise work on the way to a write behind which nothing can fail, and what reads it.
// None where the order of kernels does not matter: nothing is written, or nothing can fail.
std::vector<bool> late_nodes(const Graph& graph, const Roles& roles);

}  // namespace smelt
