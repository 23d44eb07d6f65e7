// Kernels started on ATen's threads.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/program.h"

namespace smelt {

// `buffers`: one pointer per buffer of the kernel, nullptr for scratch. `symbols`: values of the
// program's symbols. False: the kernel found an index out of range or a division by 0; what it has
// written means nothing then. Where there is no memory for its scratch, PyTorch's exception.
bool launch(const KernelCode& kernel, std::span<void* const> buffers,
            std::span<const int64_t> symbols);

struct Launch {
  const KernelCode* kernel = nullptr;
  void* const* buffers = nullptr;
};
// Kernels that do not depend on each other, all at once: threads are woken once.
bool launch_all(std::span<const Launch> launches, std::span<const int64_t> symbols);

}  // namespace smelt
