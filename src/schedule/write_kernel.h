// The loop program of a group.
#pragma once

#include <vector>

#include "schedule/grouping.h"
#include "schedule/schedule.h"

namespace smelt {

// `stored`: by value, whether anybody outside its group reads it.
ScheduledKernel write_kernel(const Graph& graph, const Roles& roles, const Grouping& grouping,
                             int group, const std::vector<bool>& stored);

}  // namespace smelt
