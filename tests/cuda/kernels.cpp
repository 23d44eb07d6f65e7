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
#include "loops/random_kernel.h"
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

// Runs a case on the GPU; `offset` elements before each buffer make it badly aligned.
std::string difference_on_gpu(const Case& one, const LoadedKernel& kernel, int offset, Host& host) {
  loops::RandomCase found = one.start;
  std::vector<std::shared_ptr<void>> blocks;
  std::vector<void*> buffers;
  constexpr size_t kGuard = 256;
  const auto place_of = [&](size_t i) {
    return kGuard + static_cast<size_t>(offset * bytes_of(found.kernel.buffers[i].dtype));
  };
  for (size_t i = 0; i < found.buffers.size(); ++i) {
    const size_t bytes = found.buffers[i].size(), all = bytes + 3 * kGuard;
    const bool scratch = found.kernel.buffers[i].kind == loops::Buffer::Kind::scratch;
    blocks.push_back(scratch ? nullptr : allocate(all));
    buffers.push_back(scratch ? nullptr : static_cast<std::byte*>(blocks[i].get()) + place_of(i));
    if (scratch) continue;
    memory().cuMemsetD8(address(blocks[i].get()), 0x5a, all);
    if (bytes > 0)
      check_driver(memory().cuMemcpyHtoD(address(buffers[i]), found.buffers[i].data(), bytes),
                   "cuMemcpyHtoD");
  }
  const Launch launch{&kernel, buffers.data(), found.params.data()};
  cuda::cuda_backend().launch({&launch, 1}, found.symbols, host);
  check_driver(memory().cuCtxSynchronize(), "a kernel");
  for (size_t i = 0; i < found.buffers.size(); ++i) {
    if (!buffers[i]) continue;
    const size_t bytes = found.buffers[i].size(), place = place_of(i);
    std::vector<unsigned char> all(bytes + 3 * kGuard);
    check_driver(memory().cuMemcpyDtoH(all.data(), address(blocks[i].get()), all.size()),
                 "cuMemcpyDtoH");
    std::memcpy(found.buffers[i].data(), all.data() + place, bytes);
    for (size_t at = 0; at < all.size(); ++at)
      if ((at < place || at >= place + bytes) && all[at] != 0x5a)
        return "b" + std::to_string(i) + ": written outside of it";
  }
  return loops::difference(found.kernel, one.expected.buffers, found.buffers);
}

int random_kernels(uint64_t count) {
  PlainHost host;
  size_t good = 0, refused = 0, failing = 0, bad = 0;
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
    }
  }
  std::printf(
      "random kernels: %zu equal the interpreter, %zu differ; %zu are refused, %zu fail by "
      "design\n",
      good, bad, refused, failing);
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
