// ATen's threads and memory, for kernels that run on the host.
#pragma once

#include "runtime/host.h"

namespace smelt {

// There is one in a process; its threads are those that PyTorch's own ops use. Where there is no
// memory for scratch, it throws PyTorch's exception.
Host& aten_host();

}  // namespace smelt
