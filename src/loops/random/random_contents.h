// What the buffers of random kernels hold, and how they are compared.
#pragma once

#include "loops/random/random_kernel.h"
#include "loops/random/random_values.h"

namespace smelt::loops {

struct Contents {
  // Integers in [0, bound), if it is not 0.
  int64_t bound = 0;
  // Also NaN and infinities; integers of the whole range.
  bool wild = false;
  // A few of the integers are out of bounds.
  bool broken = false;
};

std::vector<std::byte> random_bytes(DType dtype, int64_t elements, const Contents& contents,
                                    Random& random);

}  // namespace smelt::loops
