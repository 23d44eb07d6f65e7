// The loop program of an update.
#pragma once

#include "schedule/roles.h"
#include "schedule/schedule.h"

namespace smelt {

ScheduledKernel write_update(const Graph& graph, const Roles& roles, NodeId node, bool any_order);

}  // namespace smelt
