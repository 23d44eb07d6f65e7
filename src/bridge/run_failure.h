// What a run that threw leaves behind, for whoever has to go on from there.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

namespace smelt {

struct RunFailure {
  // Nothing has happened that the caller can see: everything may be done again. Else it is as after
  // eager's ops up to the one that failed.
  bool clean = true;
  size_t position = 0;              // if not clean: the item of the log that failed
  std::vector<at::Tensor> outputs;  // likewise: those that there are by then, others undefined
};

}  // namespace smelt
