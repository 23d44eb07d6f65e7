// Where a program takes the most memory, and for what.
#pragma once

#include <string>

#include "graph/graph.h"
#include "runtime/program.h"
#include "schedule/schedule.h"

namespace smelt {

// The step at which the tensors that the program has made and still holds are largest together, and
// these tensors, one per line. Sizes that depend on symbols are those of the recording. Not counted
// are inputs and constants, and what a library takes by itself while it is called.
std::string describe_peak(const Graph& graph, const Schedule& schedule, const Program& program);

}  // namespace smelt
