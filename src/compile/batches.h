// Kernels that follow each other and do not depend on each other: they are launched together.
#pragma once

#include <vector>

#include "graph/graph.h"
#include "schedule/schedule.h"

namespace smelt {

// By position in the schedule's order: the last position of the batch it belongs to, its own if it
// runs by itself. `in_place`: as stored_in_place.
std::vector<int> batch_ends(const Graph& graph, const Schedule& schedule,
                            const std::vector<ValueId>& in_place);

}  // namespace smelt
