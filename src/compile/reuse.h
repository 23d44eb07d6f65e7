// Which outputs of a kernel may take the memory of an input that nobody reads afterwards.
#pragma once

#include <functional>
#include <vector>

#include "graph/graph.h"
#include "schedule/schedule.h"

namespace smelt {

// For each buffer that the kernel writes, in order, a value whose memory it may take; -1 for none.
// That is an input whose elements the kernel reads only at the place it writes, and not after it,
// or what an updated buffer begins as. Each value once. `dies`: does nobody read it after the
// kernel?
std::vector<ValueId> reusable_values(const Graph& graph, const ScheduledKernel& scheduled,
                                     const std::function<bool(ValueId)>& dies);

}  // namespace smelt
