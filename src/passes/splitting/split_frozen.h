// What a graph computes from frozen inputs alone, as a graph of its own that runs once for many
// runs of the other: folded and packed weights, tables, masks. It stands behind all passes.
#pragma once

#include <optional>
#include <vector>

#include "graph/graph.h"

namespace smelt {

// Takes that part out of `graph`, which gets its results as its last inputs, captured ones. The
// part's inputs are arguments, and count the inputs of `graph`. Nothing if there is nothing to
// compute: a view is made anew by each run. `frozen`: as PassOptions has it.
std::optional<Graph> split_frozen(Graph& graph, const std::vector<bool>& frozen);

}  // namespace smelt
