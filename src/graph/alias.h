// Which values share memory: through views a value leads back to the one that owns the storage.
#pragma once

#include <vector>

#include "graph/graph.h"

namespace smelt {

// The tensor whose memory a view node shows: the first one among its arguments; -1 if there is
// none.
ValueId viewed(const Node& node);
// For each value the value whose memory it shows: itself, or the far end of its chain of views.
std::vector<ValueId> view_roots(const Graph& graph);
// For each value: does its memory leave the graph, through an output or a set_grad?
std::vector<bool> escaping_roots(const Graph& graph);

}  // namespace smelt
