// Runs a kernel instruction by instruction, point by point: slow, plain, and the oracle for every
// back end.
#pragma once

#include <cstdint>
#include <span>

#include "loops/kernel.h"

namespace smelt::loops {

// What machine code is given too. `buffers` as in Kernel::buffers (nullptr for scratch), `sizes`
// the values of size_params(kernel), `params` the run-time scalars. False: a check failed.
struct Call {
  std::span<void* const> buffers;
  std::span<const int64_t> sizes;
  std::span<const uint64_t> params;
};
bool interpret(const Kernel& kernel, const Call& call);

// The value of a size when the kernel's unknown sizes have the given values. `symbols`: the
// graph's.
std::vector<int64_t> evaluate(const Sizes& sizes, std::span<const int64_t> symbols);

}  // namespace smelt::loops
