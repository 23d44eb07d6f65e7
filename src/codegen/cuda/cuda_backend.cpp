#include "codegen/cuda/cuda_backend.h"

#include <algorithm>

#include "codegen/cuda/cuda_code.h"
#include "codegen/cuda/cuda_kernel.h"
#include "codegen/cuda/driver.h"
#include "codegen/cuda/joined_kernels.h"
#include "codegen/cuda/plan.h"

namespace smelt::cuda {
namespace {

// Rows of several passes stay in the registers of a block; of columns a block has 32 at a time, and
// few blocks are slower than another pass. What a block passes over in less time than a kernel takes
// to start need not have many rows. Updates have a thread for each column.
constexpr FusionLimits kLimits{.longest_row = 64 * 1024,
                               .few_rows = 64,
                               .few_columns = 4096,
                               .small_work = 8192,
                               .update_parts = 4096,
                               .update_part_width = 1};

// One thread may walk so many inner points that must keep their order.
constexpr int64_t kSerialPoints = 2048;
constexpr int64_t kManyThreads = 16 * 1024;  // beside which it does not stand out

class CudaBackend final : public Backend {
 public:
  std::string_view name() const override { return "cuda"; }
  std::string target() const override { return current_architecture(); }
  Decision is_available() const override {
    const Decision driver = has_driver();
    return driver ? has_nvrtc() : driver;
  }
  bool is_native() const override { return true; }
  bool serves(const Device& device) const override { return device.is_cuda(); }
  bool runs_on_host() const override { return false; }

  int64_t drawing_blocks(const Device& device) const override {
    constexpr int kMultiprocessors = 16, kThreadsOfOne = 39, kBlock = 256;
    int processors = 0, threads = 0;
    CuDevice handle = 0;
    if (!has_driver() || driver().cuInit(0) != 0 ||
        driver().cuDeviceGet(&handle, std::max<int>(device.index, 0)) != 0 ||
        driver().cuDeviceGetAttribute(&processors, kMultiprocessors, handle) != 0 ||
        driver().cuDeviceGetAttribute(&threads, kThreadsOfOne, handle) != 0)
      return 0;
    return int64_t{processors} * (threads / kBlock);
  }

  const FusionLimits& limits() const override { return kLimits; }

  Decision can_compile(const loops::Kernel& kernel) const override {
    const auto refused = [](DType dtype) { return !loops::is_supported(dtype); };
    for (const loops::Buffer& buffer : kernel.buffers)
      if (refused(buffer.dtype))
        return Decision::forbid(std::string(name_of(buffer.dtype)) + " is not supported");
    for (const loops::Inst& inst : kernel.insts)
      if (refused(inst.dtype))
        return Decision::forbid(std::string(name_of(inst.dtype)) + " is not supported");
    if (kernel.ordered && !adds_only(kernel))
      return Decision::forbid("its points must run one after the other");
    if (!kernel.inner.empty() && needs_order(kernel)) {
      const auto points = product(kernel.inner).as_known();
      const bool many = product(kernel.outer).as_known().value_or(0) >= kManyThreads;
      if (!points || *points > kSerialPoints * (many ? 16 : 1))
        return Decision::forbid("many of its points must run one after the other");
    }
    return Decision::allow();
  }

  std::vector<KernelImage> compile(std::span<const loops::Kernel* const> kernels,
                                   const KernelOptions& options) const override {
    const std::string architecture = target();
    const auto codes = compile_kernels(kernels, options.contract, architecture);
    std::vector<KernelImage> images;
    for (size_t i = 0; i < kernels.size(); ++i) {
      KernelImage image = describe(*kernels[i], *this);
      image.target = architecture;
      image.code = codes[i];
      images.push_back(std::move(image));
    }
    return images;
  }

  std::vector<std::shared_ptr<const LoadedKernel>> load(
      std::span<const KernelImage> images) const override {
    return load_each<CudaKernel>(images);
  }

  bool launch(std::span<const Launch> launches, std::span<const int64_t> symbols,
              Host& host) const override {
    const auto kernel_of = [](const Launch& launch) {
      return static_cast<const CudaKernel*>(launch.kernel);
    };
    if (launches.size() == 1) {
      const CudaKernel& kernel = *kernel_of(launches[0]);
      kernel.launch(kernel.start(launches[0], symbols), host);
      return true;
    }
    std::vector<Started> batch;
    batch.reserve(launches.size());
    for (const Launch& launch : launches)
      batch.push_back({kernel_of(launch), kernel_of(launch)->start(launch, symbols)});
    batch[0].kernel->joined().launch(batch, host);
    return true;
  }
};

const CudaBackend backend;
const BackendRegistration registration(backend);

}  // namespace

const Backend& cuda_backend() { return backend; }

}  // namespace smelt::cuda
