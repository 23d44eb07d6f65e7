// Which outputs of a kernel may take the memory of an input that nobody reads afterwards.
#pragma once

#include <vector>

#include "graph/graph.h"
#include "schedule/schedule.h"

namespace smelt {

// For each output buffer of the kernel, in order, the buffer number of an input whose elements the
// kernel reads only at the place it writes, and not after it; -1 for none. Each input once.
// `dying[i]`: nobody reads the value of buffer i after the kernel.
std::vector<int> reusable_inputs(const Graph& graph, const ScheduledKernel& scheduled,
                                 const std::vector<bool>& dying);

}  // namespace smelt
