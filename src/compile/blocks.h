// The pieces of memory that a program takes for its results: how long each is held, and who sees
// it.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.h"
#include "runtime/program.h"
#include "schedule/schedule.h"

namespace smelt {

struct Block {
  struct Made {
    int32_t step = 0, result = 0;
  };
  // Results that lie in it: the one it was taken for, then those that took it over.
  std::vector<Made> made;
  int32_t first = 0, last = 0;  // steps: taken by the one, given back after the other
  // Kernels make all that is in it. It is read by kernels, and by ops of PyTorch's that return new
  // tensors: no tensor of the caller's, and none that is a view by PyTorch's means, shows it.
  bool inside = true;
};

// In the order in which they are taken. Not listed are inputs and constants.
std::vector<Block> blocks_of(const Graph& graph, const Schedule& schedule, const Program& program);

const TensorType& type_of(const Program& program, const Block& block);
// From the first element to the last.
Size bytes_of(const TensorType& type);

}  // namespace smelt
