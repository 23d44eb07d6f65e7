// Kernels whose work is cut into units, shared by the threads of a host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/size.h"
#include "runtime/host.h"

namespace smelt {

// Machine code of the host, and how it is started; as KernelImage has it.
struct UnitKernel {
  // Runs the units [begin, end); false: an index was out of range, or an integer division by 0.
  using Function = bool (*)(void* const* buffers, const int64_t* sizes, const uint64_t* params,
                            int64_t begin, int64_t end, std::byte* scratch);
  Function run = nullptr;
  Function finish = nullptr;  // the second part, where there is one
  size_t buffers = 0;
  Sizes sizes;
  Size units = 0;
  Size unit_cost = 0;
  size_t scratch_bytes = 0;
  bool ordered = false;
  int64_t finish_units = 0;
  size_t partial_bytes = 0;
};

// One kernel with its buffers, a pointer for each, nullptr for scratch, and its parameters.
struct UnitLaunch {
  const UnitKernel* kernel = nullptr;
  void* const* buffers = nullptr;
  const uint64_t* params = nullptr;
  // The values of kernel->sizes, units and unit_cost, one behind the other, where they are known;
  // else they are computed.
  const int64_t* sizes = nullptr;
};

// Runs kernels that do not depend on each other; threads are woken once for all of them, and only
// where that is worth it. `symbols`: values of the program's symbols. False: a kernel found an
// index out of range or a division by 0; what it has written means nothing then. An exception of
// the host where there is no memory for scratch.
bool share_units(std::span<const UnitLaunch> launches, std::span<const int64_t> symbols,
                 Host& host);

}  // namespace smelt
