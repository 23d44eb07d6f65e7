// A joint graph (forward, and the gradients PyTorch's own formulas compute) as two graphs: what a
// training step runs at once, and what it runs when gradients are asked for.
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

// What parts a joint graph: its arguments from `arguments` on are gradients of outputs, its outputs
// from `outputs` on gradients of arguments.
struct JointParts {
  int32_t arguments = 0;
  int32_t outputs = 0;
  // Nothing is saved but arguments and what was drawn; the backward computes all else again.
  bool recompute = false;
};

// Tensors of the caller that eager keeps for its backward, by argument and by output of the
// forward. A change of one before the backward is an error in eager, so these are saved; a change
// of any other is not, so those are never saved.
struct KeptTensors {
  std::vector<bool> arguments, outputs;
};
// Asked of the graph as it was recorded, before any pass: there the backward reads what eager
// saves.
KeptTensors kept_by_eager(const Graph& joint, JointParts parts);

// `available`, by value: these alone may be saved, and they are there anyway. Empty: what is saved
// is chosen (choose_saved.h).
SplitGraphs split_joint(const Graph& joint, JointParts parts, const KeptTensors& kept,
                        const std::vector<bool>& available = {});

}  // namespace smelt
