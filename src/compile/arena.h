// Small results that only the program sees get places in one block that a run takes at its start.
#pragma once

#include "graph/graph.h"
#include "runtime/program.h"
#include "schedule/schedule.h"

namespace smelt {

// Fills program.arena and the steps' places in it, or leaves both empty where an arena brings
// nothing or would make the program take more memory than without. The last thing that lowering
// does: it needs the releases and what takes whose memory.
void place_in_arena(const Graph& graph, const Schedule& schedule, Program& program);

}  // namespace smelt
