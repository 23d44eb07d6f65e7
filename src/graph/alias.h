// Which values share memory: through views a value leads back to the one that owns the storage.
#pragma once

#include <vector>

#include "graph/graph.h"

namespace smelt {

// For each value the value whose memory it shows: itself, or the far end of its chain of views.
std::vector<ValueId> view_roots(const Graph& graph);
// For each value: does its memory leave the graph, through an output or a set_grad?
std::vector<bool> escaping_roots(const Graph& graph);

}  // namespace smelt
