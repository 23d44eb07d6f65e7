// Built without LLVM: the back end for the CPU is there, says so, and ops go through the
// dispatcher.
#include "backend/backend.h"

namespace smelt {
namespace {

class NoCpuBackend final : public Backend {
 public:
  std::string_view name() const override { return "cpu"; }
  std::string target() const override { return "none"; }
  Decision is_available() const override { return Decision::forbid("built without LLVM"); }
  bool is_native() const override { return true; }
  bool serves(const Device& device) const override { return device.is_cpu(); }

  const FusionLimits& limits() const override { return kHostLimits; }
  Decision can_compile(const loops::Kernel&) const override { return is_available(); }
  std::vector<KernelImage> compile(std::span<const loops::Kernel* const>,
                                   const KernelOptions&) const override {
    SMELT_CHECK(false, "built without LLVM");
    return {};
  }
  std::vector<std::shared_ptr<const LoadedKernel>> load(
      std::span<const KernelImage>) const override {
    throw Error(
        "this smelt was built without LLVM and runs no compiled kernels; build it with LLVM");
  }
  bool launch(std::span<const Launch>, std::span<const int64_t>, Host&) const override {
    SMELT_CHECK(false, "built without LLVM");
    return false;
  }
};

const NoCpuBackend backend;
const BackendRegistration registration(backend);

}  // namespace
}  // namespace smelt
