// What the image of a kernel holds: machine code of the variant that is most often used, and the
// text that others are made of when they are needed.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/cuda/nvrtc_compile.h"
#include "codegen/cuda/source.h"

namespace smelt::cuda {

// Indices below this have 32 bits, with room for sums.
constexpr int64_t kShortIndex = int64_t{1} << 30;

struct CudaCode {
  Facts facts;
  std::string text;
  std::string machine_code;

  std::string pack() const;
  // An Error if it is something else.
  static CudaCode unpack(std::string_view packed);
};

// Is it known, before sizes are, that indices need 64 bits?
bool needs_long_index(const Facts& facts);

// Machine code of a text that is no image of its own; equal ones once, while someone holds it.
std::shared_ptr<const std::string> compile_once(const std::string& text, const Variant& variant);

// For an architecture ("sm_90"), on several threads; equal ones once. Packed.
std::vector<std::shared_ptr<const std::string>> compile_kernels(
    std::span<const loops::Kernel* const> kernels, bool contract, const std::string& architecture,
    const PlanOptions& options = {});

}  // namespace smelt::cuda
