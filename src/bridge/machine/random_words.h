// Random words that kernels compute of a generator's state (graph/numbers.h: draw).
#pragma once

#include <ATen/core/Generator.h>

#include <cstdint>
#include <vector>

#include "bridge/machine/linked_program.h"

namespace smelt {

// Where in the streams of the generator's seed the words begin, in blocks of four.
struct RandomPlace {
  int64_t seed = 0, place = 0;
};

// The next `count` blocks; the generator goes on behind them. KernelFailed while somebody captures a
// CUDA graph: PyTorch's own kernels read the generator when that runs.
RandomPlace take_random_words(at::Generator generator, int64_t count);

// Where the generators stand that a program's kernels draw from, to come back to.
class PlacesOfGenerators {
 public:
  explicit PlacesOfGenerators(const LinkedProgram& program);
  void restore();

 private:
  std::vector<std::pair<at::Generator, uint64_t>> places_;
};

// Fails if kernels that were compiled for so many blocks would draw other numbers than PyTorch's
// on this device.
void check_drawing_blocks(const Device& device, int64_t blocks);

}  // namespace smelt
