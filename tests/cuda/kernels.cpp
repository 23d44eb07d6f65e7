// Kernels of the CUDA back end on a GPU, without PyTorch: random ones against the loop interpreter,
// and the times of a few large ones. Run by hand, or by test_kernels_cuda.py:
//   smelt_cuda_kernels random 2000
//   smelt_cuda_kernels times
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "codegen/cuda/cuda_backend.h"
#include "codegen/cuda/cuda_code.h"
#include "codegen/cuda/driver.h"
#include "kernel_texts.h"
#include "loops/interpret.h"
#include "loops/random/random_kernel.h"
#include "loops/simplify.h"

namespace {

using namespace smelt;
using cuda::check_driver;
using cuda::CuPointer;
using cuda::CuResult;
using cuda::CuStream;

// What only this program asks of the driver.
struct Memory {
  CuResult (*cuCtxSetCurrent)(cuda::CuContext);
  CuResult (*cuMemAlloc)(CuPointer*, size_t);
  CuResult (*cuMemFree)(CuPointer);
  CuResult (*cuMemcpyHtoD)(CuPointer, const void*, size_t);
  CuResult (*cuMemcpyDtoH)(void*, CuPointer, size_t);
  CuResult (*cuMemsetD8)(CuPointer, unsigned char, size_t);
  CuResult (*cuCtxSynchronize)();
  CuResult (*cuEventCreate)(void**, unsigned);
  CuResult (*cuEventRecord)(void*, CuStream);
  CuResult (*cuEventElapsedTime)(float*, void*, void*);
};

const Memory& memory() {
  static const Memory all = [] {
    void* library = dlopen("libcuda.so.1", RTLD_NOW);
    Memory found{};
    const auto find = [&](const char* name, auto& function) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      if (!function) throw std::runtime_error(name);
    };
    find("cuCtxSetCurrent", found.cuCtxSetCurrent);
    find("cuMemAlloc_v2", found.cuMemAlloc);
    find("cuMemFree_v2", found.cuMemFree);
    find("cuMemcpyHtoD_v2", found.cuMemcpyHtoD);
    find("cuMemcpyDtoH_v2", found.cuMemcpyDtoH);
    find("cuMemsetD8_v2", found.cuMemsetD8);
    find("cuCtxSynchronize", found.cuCtxSynchronize);
    find("cuEventCreate", found.cuEventCreate);
    find("cuEventRecord", found.cuEventRecord);
    find("cuEventElapsedTime", found.cuEventElapsedTime);
    return found;
  }();
  return all;
}

std::shared_ptr<void> allocate(size_t bytes) {
  CuPointer pointer = 0;
  check_driver(memory().cuMemAlloc(&pointer, std::max<size_t>(bytes, 1)), "cuMemAlloc");
  return {reinterpret_cast<void*>(pointer),
          [](void* p) { memory().cuMemFree(reinterpret_cast<CuPointer>(p)); }};
}
CuPointer address(const void* pointer) { return reinterpret_cast<CuPointer>(pointer); }

class PlainHost final : public Host {
 public:
  int threads() const override { return 1; }
  void run(int64_t, const std::function<void(int64_t)>&) override {}
  std::byte* scratch(size_t) override { return nullptr; }
  void* stream(const Device&) override { return nullptr; }
  // Kept until everything has run: the block is not given back by the stream's order here.
  std::shared_ptr<void> device_memory(const Device&, size_t bytes) override {
    if (!kept_ || bytes > bytes_) {
      memory().cuCtxSynchronize();
      kept_ = allocate(bytes);
      bytes_ = bytes;
    }
    return kept_;
  }

 private:
  std::shared_ptr<void> kept_;
  size_t bytes_ = 0;
};

void start() {
  const cuda::Driver& driver = cuda::driver();
  check_driver(driver.cuInit(0), "cuInit");
  cuda::CuDevice device = 0;
  cuda::CuContext context = nullptr;
  check_driver(driver.cuDeviceGet(&device, 0), "cuDeviceGet");
  check_driver(driver.cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
  check_driver(memory().cuCtxSetCurrent(context), "cuCtxSetCurrent");
}

constexpr Device kDevice{.type = 1, .index = 0};

std::vector<std::shared_ptr<const LoadedKernel>> load(
    const std::vector<const loops::Kernel*>& kernels, bool contract, bool as_if_large) {
  const Backend& backend = cuda::cuda_backend();
  const auto codes =
      cuda::compile_kernels(kernels, contract, backend.target(), {.as_if_large = as_if_large});
  std::vector<KernelImage> images;
  for (size_t i = 0; i < kernels.size(); ++i) {
    images.push_back(describe(*kernels[i], backend));
    images.back().code = codes[i];
    images.back().device = kDevice;
  }
  return backend.load(images);
}

struct Case {
  loops::RandomCase start, expected;
  uint64_t seed;
};

// The buffers of a case on the GPU; `offset` elements before each make it badly aligned.
class CaseOnGpu {
 public:
  CaseOnGpu(const Case& one, const LoadedKernel& kernel, int offset)
      : one_(one), kernel_(kernel), offset_(offset), found_(one.start) {
    for (size_t i = 0; i < found_.buffers.size(); ++i) {
      const bool scratch = found_.kernel.buffers[i].kind == loops::Buffer::Kind::scratch;
      blocks_.push_back(scratch ? nullptr : allocate(found_.buffers[i].size() + 3 * kGuard));
      buffers_.push_back(scratch ? nullptr
                                 : static_cast<std::byte*>(blocks_[i].get()) + place_of(i));
    }
    fill();
  }

  // As before any launch.
  void fill() {
    for (size_t i = 0; i < found_.buffers.size(); ++i) {
      const std::vector<std::byte>& start = one_.start.buffers[i];
      if (!buffers_[i]) continue;
      memory().cuMemsetD8(address(blocks_[i].get()), 0x5a, start.size() + 3 * kGuard);
      if (!start.empty())
        check_driver(memory().cuMemcpyHtoD(address(buffers_[i]), start.data(), start.size()),
                     "cuMemcpyHtoD");
    }
  }

  Launch launch() const { return {&kernel_, buffers_.data(), found_.params.data()}; }

  // Behind the launch: what is not as the interpreter has it.
  std::string difference() {
    for (size_t i = 0; i < found_.buffers.size(); ++i) {
      if (!buffers_[i]) continue;
      const size_t bytes = found_.buffers[i].size(), place = place_of(i);
      std::vector<unsigned char> all(bytes + 3 * kGuard);
      check_driver(memory().cuMemcpyDtoH(all.data(), address(blocks_[i].get()), all.size()),
                   "cuMemcpyDtoH");
      std::memcpy(found_.buffers[i].data(), all.data() + place, bytes);
      for (size_t at = 0; at < all.size(); ++at)
        if ((at < place || at >= place + bytes) && all[at] != 0x5a)
          return "b" + std::to_string(i) + ": written outside of it";
    }
    return loops::difference(found_.kernel, one_.expected.buffers, found_.buffers);
  }

 private:
  static constexpr size_t kGuard = 256;
  size_t place_of(size_t i) const {
    return kGuard + static_cast<size_t>(offset_ * bytes_of(found_.kernel.buffers[i].dtype));
  }

  const Case& one_;
  const LoadedKernel& kernel_;
  const int offset_;
  loops::RandomCase found_;
  std::vector<std::shared_ptr<void>> blocks_;
  std::vector<void*> buffers_;
};

std::string difference_on_gpu(const Case& one, const LoadedKernel& kernel, int offset, Host& host) {
  CaseOnGpu on_gpu(one, kernel, offset);
  const Launch launch = on_gpu.launch();
  cuda::cuda_backend().launch({&launch, 1}, one.start.symbols, host);
  check_driver(memory().cuCtxSynchronize(), "a kernel");
  return on_gpu.difference();
}

// As one batch, each case twice: it runs three times, and is joined from the second time on.
std::string difference_of_batch(std::span<const Case* const> cases,
                                std::span<const LoadedKernel* const> kernels, Host& host) {
  std::vector<std::unique_ptr<CaseOnGpu>> all;
  std::vector<Launch> launches;
  for (size_t i = 0; i < 2 * cases.size(); ++i) {
    all.push_back(
        std::make_unique<CaseOnGpu>(*cases[i % cases.size()], *kernels[i % cases.size()], 0));
    launches.push_back(all.back()->launch());
  }
  for (int run = 0; run < 3; ++run) {
    for (const auto& one : all) one->fill();
    cuda::cuda_backend().launch(launches, {}, host);
    check_driver(memory().cuCtxSynchronize(), "joined kernels");
    for (size_t i = 0; i < all.size(); ++i)
      if (const std::string text = all[i]->difference(); !text.empty())
        return "seed " + std::to_string(cases[i % cases.size()]->seed) + " in run " +
               std::to_string(run) + ": " + text;
  }
  return "";
}

int random_kernels(uint64_t count) {
  PlainHost host;
  size_t good = 0, joined = 0, refused = 0, failing = 0, bad = 0;
  constexpr uint64_t kBatch = 128;
  for (uint64_t first = 0; first < count; first += kBatch) {
    std::vector<Case> cases;
    for (uint64_t seed = first; seed < std::min(count, first + kBatch); ++seed) {
      Case one{
          seed % 3 == 2 ? loops::random_symbolic_case(seed) : loops::random_case(seed), {}, seed};
      if (seed % 3 == 1) {
        loops::simplify(one.start.kernel);
        one.start.sizes = loops::evaluate(loops::size_params(one.start.kernel), one.start.symbols);
      }
      if (!cuda::cuda_backend().can_compile(one.start.kernel)) {
        ++refused;
        continue;
      }
      one.expected = one.start;
      // A failed check would end the context.
      if (!loops::interpret(one.expected)) {
        ++failing;
        continue;
      }
      cases.push_back(std::move(one));
    }
    for (const bool large : {false, true}) {
      std::vector<const loops::Kernel*> kernels;
      std::vector<const Case*> chosen;
      for (const Case& one : cases)
        if ((one.seed / 3 % 2 == 0) == large) {
          kernels.push_back(&one.start.kernel);
          chosen.push_back(&one);
        }
      const auto loaded = load(kernels, first / kBatch % 2 == 0, large);
      for (size_t i = 0; i < chosen.size(); ++i) {
        const int offset = chosen[i]->seed % 16 == 5 ? 1 : 0;
        const std::string difference = difference_on_gpu(*chosen[i], *loaded[i], offset, host);
        if (difference.empty()) {
          ++good;
          continue;
        }
        ++bad;
        std::printf("seed %lu%s%s: %s\n", chosen[i]->seed, large ? " large" : "",
                    offset ? " unaligned" : "", difference.c_str());
        if (bad <= 2) std::printf("%s\n", chosen[i]->start.kernel.str().c_str());
      }
      // Those without symbols, some at a time.
      constexpr size_t kJoined = 5;
      std::vector<const Case*> known;
      std::vector<const LoadedKernel*> known_kernels;
      for (size_t i = 0; i < chosen.size(); ++i) {
        if (!chosen[i]->start.symbols.empty()) continue;
        known.push_back(chosen[i]);
        known_kernels.push_back(loaded[i].get());
      }
      for (size_t i = 0; i + kJoined <= known.size(); i += kJoined) {
        const std::string difference =
            difference_of_batch(std::span(known).subspan(i, kJoined),
                                std::span(known_kernels).subspan(i, kJoined), host);
        ++(difference.empty() ? joined : bad);
        if (!difference.empty()) std::printf("joined: %s\n", difference.c_str());
      }
    }
  }
  std::printf(
      "random kernels: %zu equal the interpreter, %zu batches joined do, %zu differ; %zu are "
      "refused, %zu fail by design\n",
      good, joined, bad, refused, failing);
  return bad > 0;
}

// The median of single launches, in microseconds.
double time_of(const LoadedKernel& kernel, const std::vector<void*>& buffers, Host& host) {
  const Launch launch{&kernel, buffers.data(), nullptr};
  std::vector<double> times;
  void *begin = nullptr, *end = nullptr;
  memory().cuEventCreate(&begin, 0);
  memory().cuEventCreate(&end, 0);
  for (int i = 0; i < 60; ++i) {
    memory().cuEventRecord(begin, nullptr);
    cuda::cuda_backend().launch({&launch, 1}, {}, host);
    memory().cuEventRecord(end, nullptr);
    check_driver(memory().cuCtxSynchronize(), "a kernel");
    float ms = 0;
    memory().cuEventElapsedTime(&ms, begin, end);
    if (i >= 10) times.push_back(1000.0 * ms);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

int times() {
  PlainHost host;
  for (const KernelText& row : kKernelTexts) {
    const loops::Kernel kernel = loops::Kernel::parse(row.text);
    kernel.verify();
    const auto began = std::chrono::steady_clock::now();
    const auto loaded = load({&kernel}, true, false);
    const double compiled =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - began).count();
    std::vector<std::shared_ptr<void>> blocks;
    std::vector<void*> buffers;
    double bytes = 0;
    for (const loops::Buffer& buffer : kernel.buffers) {
      const bool scratch = buffer.kind == loops::Buffer::Kind::scratch;
      const size_t size = scratch ? 0 : buffer.elements.known() * bytes_of(buffer.dtype);
      blocks.push_back(scratch ? nullptr : allocate(size));
      if (!scratch) memory().cuMemsetD8(address(blocks.back().get()), 0, size);
      buffers.push_back(blocks.back().get());
      bytes += static_cast<double>(size);
    }
    const double us = time_of(*loaded[0], buffers, host);
    std::printf("%-28s %9.1f us %7.0f GB/s   goal %s, compiled in %.0f ms\n", row.name, us,
                bytes / us / 1000, row.goal, compiled);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  for (const Decision& decision : {cuda::has_driver(), cuda::has_nvrtc()}) {
    if (decision) continue;
    std::printf("skipped: %s\n", decision.reason().c_str());
    return 77;
  }
  try {
    start();
    if (what == "random")
      return random_kernels(argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 2000);
    if (what == "times") return times();
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
  std::printf("usage: %s random [COUNT] | times\n", argv[0]);
  return 2;
}
