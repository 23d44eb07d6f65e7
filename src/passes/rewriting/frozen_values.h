// What stays as it is from run to run, because frozen inputs (PassOptions::frozen) and constants
// do.
#pragma once

#include <vector>

#include "graph/graph.h"

namespace smelt {

// By value: it is such an input, or computed from such alone, and may be computed once: neither
// does its memory go to the caller, nor is it changed.
std::vector<bool> frozen_values(const Graph& graph, const std::vector<bool>& inputs);
// Is the argument such a value? `frozen` may know less values than there are by now.
bool is_frozen(const std::vector<bool>& frozen, const Arg& arg);

}  // namespace smelt
