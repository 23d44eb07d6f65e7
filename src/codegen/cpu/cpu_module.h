// Kernels as machine code of this processor, made in the process by LLVM: no compiler, assembler,
// linker or file. (Where smelt is built without LLVM, codegen/no_cpu answers in its place.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "loops/kernel.h"

namespace smelt {

struct CpuOptions {
  // a*b + c may be computed with one rounding.
  bool contract = true;
  // The widest vectors to use, in bits; 0: what the processor likes best.
  int vector_bits = 0;
  // Kernels whose results have more bytes write past the caches; 0: more than the caches hold.
  int64_t stream_bytes = 0;
  // A reduction to few results is shared by threads in slices of at least that many points; 0: as
  // many as are worth it.
  int64_t slice_points = 0;

  friend bool operator==(const CpuOptions&, const CpuOptions&) = default;
};

// Runs the units [begin, end). `buffers`, `sizes`, `params` as loops::Call; `scratch` has
// scratch_bytes bytes, aligned to 64, for this thread. False: a check failed (all units were run).
// Of a kernel with `finish`, `buffers` has one more, of partial_bytes bytes, aligned to 64.
using CpuFunction = bool (*)(void* const* buffers, const int64_t* sizes, const uint64_t* params,
                             int64_t begin, int64_t end, std::byte* scratch);

struct CpuKernel {
  CpuFunction run = nullptr;
  // The outer points are cut into units, the pieces of work that threads share; a unit has about
  // `unit_cost` element operations (loads, stores and arithmetic, in cycles roughly).
  Size units = 0;  // may depend on sizes, as in the kernel
  Size unit_cost = 0;
  size_t scratch_bytes = 0;
  bool ordered = false;  // one thread, all units
  // Set where units only combine slices of what is reduced: combines those, and does the rest. To
  // be run once, when all units are done, for [0, finish_units).
  CpuFunction finish = nullptr;
  int64_t finish_units = 0;
  size_t partial_bytes = 0;
};

// The code of some kernels. It lives as long as someone holds it.
class CpuModule {
 public:
  virtual ~CpuModule() = default;
  virtual const CpuKernel& kernel(size_t i) const = 0;
  virtual std::string assembly() const = 0;  // for people
};

// May this kernel be compiled here? "built without LLVM", "complex".
Decision can_compile_cpu(const loops::Kernel& kernel);
// All must be compilable. Equal kernels are compiled once. Thread-safe.
std::shared_ptr<const CpuModule> compile_cpu(std::span<const loops::Kernel* const> kernels,
                                             const CpuOptions& options);
// "avx512", "avx2", "none": what compile_cpu makes code for.
std::string cpu_target();

}  // namespace smelt
