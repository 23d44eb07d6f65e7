// Which outputs of a kernel may take the memory of an input that nobody reads afterwards.
#pragma once

#include <vector>

#include "graph/graph.h"
#include "schedule/schedule.h"

namespace smelt {

// For each output buffer of the kernel, in order, the buffer number of an input whose elements the
// kernel reads only at the place it writes, and not after it; -1 for none. Each input once.
// `dying[i]`: nobody reads the value of buffer i after the kernel. `placed[i]`: the output has its
// memory already.
std::vector<int> reusable_inputs(const Graph& graph, const ScheduledKernel& scheduled,
                                 const std::vector<bool>& dying, const std::vector<bool>& placed);

// Does the kernel read the input only where it stores the output, and before it does? Both are
// walked alike.
bool may_overwrite(const loops::Kernel& kernel, int input, int output);

// May it report failure: an index out of range, an integer divided by 0?
bool can_fail(const loops::Kernel& kernel);

}  // namespace smelt
