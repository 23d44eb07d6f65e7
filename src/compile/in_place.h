// Which results of kernels go straight into the memory of the input they are written to, so that
// there is neither a second tensor nor a copy.
#pragma once

#include <vector>

#include "graph/graph.h"
#include "schedule/schedule.h"

namespace smelt {

// By value: the input whose memory its kernel may store it in; -1 for a tensor of its own.
std::vector<ValueId> stored_in_place(const Graph& graph, const Schedule& schedule);

}  // namespace smelt
