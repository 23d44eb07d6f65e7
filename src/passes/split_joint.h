// A joint graph (forward, and the gradients PyTorch's own formulas compute) as two graphs: what a
// training step runs at once, and what it runs when gradients are asked for. It stands before all
// passes, so that what is kept between the two is what eager keeps.
#pragma once

#include <cstdint>
#include <vector>

#include "base/error.h"
#include "graph/graph.h"

namespace smelt {

// A tensor that the backward needs of the forward.
struct SavedValue {
  enum class From : uint8_t { input, output };
  From from = From::input;
  int32_t index = 0;   // an argument of the forward, or one of its outputs
  ValueId value = -1;  // in the joint graph
  // Outputs of the forward (the first ones, which the caller gets) on the same memory: a change of
  // those is a change of what was saved.
  std::vector<int32_t> shown_by;
};

struct SplitGraphs {
  Decision possible = Decision::allow();
  Graph forward;   // outputs: the joint graph's, then what is saved and is none of those
  Graph backward;  // arguments: what is saved, then the gradients of outputs; outputs: gradients
  std::vector<SavedValue> saved;
  // Per output of the backward: the argument of it that is handed on as it is, or -1.
  std::vector<int32_t> returned_argument;
};

// Arguments of the joint graph from `arguments` on are gradients of outputs; outputs from `outputs`
// on are gradients of arguments.
SplitGraphs split_joint(const Graph& joint, int32_t arguments, int32_t outputs);

}  // namespace smelt
