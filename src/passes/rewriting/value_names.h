// Names for what values are, not where they stand: equal computations on equal inputs have one name
// in every graph.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.h"

namespace smelt {

struct ValueName {
  uint64_t first = 0, second = 0;
  friend bool operator==(const ValueName&, const ValueName&) = default;
};

// By value. A draw or an effect is told from others like it by how many stand before it.
std::vector<ValueName> value_names(const Graph& graph);

}  // namespace smelt
