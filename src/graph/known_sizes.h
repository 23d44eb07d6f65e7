// Numbers in the place of symbols.
#pragma once

#include <cstdint>
#include <span>

#include "graph/graph.h"

namespace smelt {

// A graph for any sizes as one for those that its symbols have in some run: the same without
// symbols. Its guards hold for the values, and are no part of it.
Graph with_known_sizes(Graph graph, std::span<const int64_t> symbols);

// A symbol that a guard gives a number, or makes equal to an earlier symbol, is replaced by that in
// types and arguments: whatever looks at the graph knows more then. The symbols stay, with the
// guards, since a run is given values for all of them.
void settle_symbols(Graph& graph);

}  // namespace smelt
