// Which outputs of a kernel may take the memory of an input that nobody reads afterwards.
#pragma once

#include <functional>
#include <vector>

#include "graph/graph.h"
#include "schedule/schedule.h"

namespace smelt {

// For each buffer that the kernel writes, in order, a value whose memory it may take; -1 for none.
// That is an input whose elements the kernel reads only at the place it writes, and not after it,
// or what an updated buffer begins as, unless the kernel reads that elsewhere. Each value once.
// `dies`: does nobody read the value after the kernel, or while it runs? `placed[i]`: buffer i has
// its memory already.
std::vector<ValueId> reusable_values(const Graph& graph, const ScheduledKernel& scheduled,
                                     const std::function<bool(ValueId)>& dies,
                                     const std::vector<bool>& placed);

// Does the kernel read the input only where it stores the output, and before it does? Both are
// walked alike.
bool may_overwrite(const loops::Kernel& kernel, int input, int output);

// May it report failure: an index out of range, an integer divided by 0?
bool can_fail(const ScheduledKernel& scheduled);

}  // namespace smelt
