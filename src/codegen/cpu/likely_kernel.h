// A kernel for the sizes that its symbols are likely to have: what costs are estimated on, where
// the kernel itself is for any.
#pragma once

#include <cstdint>
#include <span>

#include "loops/kernel.h"

namespace smelt::cpu {

// The kernel with these values of the symbols; as it is, where it has symbols without a value.
loops::Kernel likely_kernel(const loops::Kernel& kernel, std::span<const int64_t> symbols);

}  // namespace smelt::cpu
