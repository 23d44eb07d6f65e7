// Tests of passes as text (base/ir_test.h).
#pragma once

#include <vector>

#include "base/ir_test.h"
#include "graph/graph.h"

namespace smelt {

// In the cases, inputs that the function captured are frozen.
inline std::vector<bool> captured_inputs(const Graph& graph) {
  std::vector<bool> captured;
  for (const Input& input : graph.inputs) captured.push_back(input.source == Source::captured);
  return captured;
}

}  // namespace smelt
