// Graph to Program: the passes, then one step per node with an early-release plan.
#pragma once

#include "base/record.h"
#include "graph/graph.h"
#include "passes/passes.h"
#include "runtime/program.h"

namespace smelt {

// Improves the graph in place and lowers it.
Program compile(Graph& graph, const PassOptions& options, Record& record);

// One step per node; registers released after their last use; symbols bound to input dimensions. An
// Error if a symbol stands in no input.
Program lower(const Graph& graph);

}  // namespace smelt
