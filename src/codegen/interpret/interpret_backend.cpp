// Kernels run by the loop interpreter: slow and plain. It is the oracle that other back ends are
// compared with, chosen through the same interface as they are.
#include "backend/backend.h"
#include "loops/interpret.h"

namespace smelt {
namespace {

class InterpretedKernel final : public LoadedKernel {
 public:
  explicit InterpretedKernel(const KernelImage& image)
      : kernel_(loops::Kernel::parse(*image.code)), sizes_(image.sizes) {}

  bool run(const Launch& launch, std::span<const int64_t> symbols) const {
    const std::vector<int64_t> sizes = loops::evaluate(sizes_, symbols);
    return loops::interpret(kernel_,
                            {.buffers = {launch.buffers, kernel_.buffers.size()},
                             .sizes = sizes,
                             .params = {launch.params, static_cast<size_t>(kernel_.params)}});
  }

 private:
  const loops::Kernel kernel_;
  const Sizes sizes_;
};

class InterpretBackend final : public Backend {
 public:
  std::string_view name() const override { return "interpret"; }
  std::string target() const override { return "interpret"; }
  Decision is_available() const override { return Decision::allow(); }
  bool is_native() const override { return false; }
  bool serves(const Device& device) const override { return device.is_cpu(); }

  const FusionLimits& limits() const override { return kHostLimits; }
  Decision can_compile(const loops::Kernel&) const override { return Decision::allow(); }

  std::vector<KernelImage> compile(std::span<const loops::Kernel* const> kernels,
                                   const KernelOptions&) const override {
    std::vector<KernelImage> images;
    for (const loops::Kernel* kernel : kernels) {
      KernelImage image = describe(*kernel, *this);
      image.code = std::make_shared<const std::string>(kernel->str());
      images.push_back(std::move(image));
    }
    return images;
  }

  std::vector<std::shared_ptr<const LoadedKernel>> load(
      std::span<const KernelImage> images) const override {
    return load_each<InterpretedKernel>(images);
  }

  bool launch(std::span<const Launch> launches, std::span<const int64_t> symbols,
              Host&) const override {
    bool good = true;
    for (const Launch& launch : launches)
      good &= static_cast<const InterpretedKernel*>(launch.kernel)->run(launch, symbols);
    return good;
  }
};

const InterpretBackend backend;
const BackendRegistration registration(backend);

}  // namespace
}  // namespace smelt
