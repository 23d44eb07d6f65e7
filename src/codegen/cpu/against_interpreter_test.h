// For tests: a kernel's machine code and the interpreter on the same data.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "codegen/cpu/cpu_module.h"
#include "loops/kernel.h"

namespace smelt::cpu {

struct KernelData {
  std::vector<std::vector<std::byte>> buffers;  // per buffer of the kernel; scratch: empty
  std::vector<int64_t> sizes;                   // of size_params
  std::vector<uint64_t> params;
};

// Numbers of a modest range, a few special ones among them if asked.
KernelData random_data(const loops::Kernel& kernel, const std::vector<int64_t>& symbols,
                       std::mt19937_64& random, bool special = false);

// Runs the machine code on the data, its units cut into random ranges. False: a check failed.
bool run_compiled(const loops::Kernel& kernel, KernelData& data, const CpuOptions& options,
                  const std::vector<int64_t>& symbols, std::mt19937_64& random);

// Runs both, as above. Empty if the results agree;
// else what is different, and the kernel.
std::string compare(const loops::Kernel& kernel, const KernelData& data, const CpuOptions& options,
                    const std::vector<int64_t>& symbols, std::mt19937_64& random);

// compare() with contraction on and off, vectors of all widths, and as if kernels were large.
std::string compare_all(const loops::Kernel& kernel, const std::vector<int64_t>& symbols = {},
                        uint64_t seed = 1, bool special = false);

}  // namespace smelt::cpu
