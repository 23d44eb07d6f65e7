// The CPU behind the interface of back ends.
#include "codegen/cpu/cpu_module.h"

namespace smelt {
namespace {

class CpuBackend final : public Backend {
 public:
  std::string_view name() const override { return "cpu"; }
  std::string target() const override { return cpu_target(); }
  Decision is_available() const override { return Decision::allow(); }
  bool is_native() const override { return true; }
  bool serves(const Device& device) const override { return device.is_cpu(); }

  const FusionLimits& limits() const override { return kHostLimits; }
  Decision can_compile(const loops::Kernel& kernel) const override {
    return can_compile_cpu(kernel);
  }

  std::vector<KernelImage> compile(std::span<const loops::Kernel* const> kernels,
                                   const KernelOptions& options) const override {
    return make_cpu_images(kernels,
                           {.contract = options.contract, .likely_symbols = options.likely_symbols},
                           options.later);
  }

  std::vector<std::shared_ptr<const LoadedKernel>> load(
      std::span<const KernelImage> images) const override {
    return load_cpu_images(images);
  }

  bool launch(std::span<const Launch> launches, std::span<const int64_t> symbols,
              Host& host) const override {
    const auto unit_launch = [](const Launch& launch) {
      return UnitLaunch{&static_cast<const CpuCode*>(launch.kernel)->kernel(), launch.buffers,
                        launch.params, launch.sizes};
    };
    if (launches.size() == 1) {
      const UnitLaunch one = unit_launch(launches[0]);
      return share_units({&one, 1}, symbols, host);
    }
    std::vector<UnitLaunch> all;
    all.reserve(launches.size());
    for (const Launch& launch : launches) all.push_back(unit_launch(launch));
    return share_units(all, symbols, host);
  }
};

const CpuBackend backend;
const BackendRegistration registration(backend);

}  // namespace

const Backend& cpu_backend() { return backend; }

}  // namespace smelt
