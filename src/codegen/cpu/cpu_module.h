// Kernels as machine code of this processor, made in the process by LLVM: no compiler, assembler,
// linker or file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "loops/kernel.h"
#include "runtime/share_units.h"

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
  // By symbol: what costs are estimated with (KernelOptions); none are likely.
  std::vector<int64_t> likely_symbols = {};

  friend bool operator==(const CpuOptions&, const CpuOptions&) = default;
};

// Code that is ready to run. A kernel with a second part needs no scratch.
class CpuCode : public LoadedKernel {
 public:
  virtual const UnitKernel& kernel() const = 0;
};

// The code of some kernels. It lives as long as someone holds it.
class CpuModule {
 public:
  virtual ~CpuModule() = default;
  virtual const UnitKernel& kernel(size_t i) const = 0;
  virtual std::string assembly() const = 0;  // for people
};

// May this kernel be compiled here? "built without LLVM", "complex".
Decision can_compile_cpu(const loops::Kernel& kernel);
// All must be compilable. Equal kernels are compiled once; with `later`, when they are loaded.
// Thread-safe.
std::vector<KernelImage> make_cpu_images(std::span<const loops::Kernel* const> kernels,
                                         const CpuOptions& options, bool later = false);
// An Error if it was made for another kind of processor. Thread-safe. `entry`: the name of its
// function in the object file.
inline constexpr const char* kKernelEntry = "kernel";
std::shared_ptr<const CpuCode> load_cpu_image(const KernelImage& image,
                                              const std::string& entry = kKernelEntry);
// Those without code are given theirs.
std::vector<std::shared_ptr<const LoadedKernel>> load_cpu_images(
    std::span<const KernelImage> images);
// Both.
std::shared_ptr<const CpuModule> compile_cpu(std::span<const loops::Kernel* const> kernels,
                                             const CpuOptions& options);
// The back end that all of this makes up.
const Backend& cpu_backend();
// "avx512", "avx2": what compile_cpu makes code for.
std::string cpu_target();

}  // namespace smelt
