// Which values kernels are given as parameters rather than in memory.
#pragma once

#include "graph/graph.h"

namespace smelt::numbers {

// Is the value a number while the program runs (numbers.h), rather than a tensor that an op has
// made of numbers? Kernels of every device are given it as a parameter.
bool is_parameter(const Graph& graph, ValueId value);

}  // namespace smelt::numbers
