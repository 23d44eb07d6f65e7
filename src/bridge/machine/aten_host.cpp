#include "bridge/machine/aten_host.h"

#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>

#include "aten/convert.h"
#include "base/error.h"

namespace smelt {
namespace {

using Body = std::function<void(int64_t)>;

// An exception must not leave its thread; the first one is thrown when all threads are done.
class ThreadErrors {
 public:
  void run(const Body& body, int64_t part) {
    try {
      body(part);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!first_) first_ = std::current_exception();
    }
  }
  void rethrow() const {
    if (first_) std::rethrow_exception(first_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr first_;
};

// PyTorch's threads are those of the OpenMP library that it is linked to. A parallel region that is
// compiled here (at::parallel_for is a template) would be another library's, or none at all, so the
// library is asked by the name that compilers call it by.
using ParallelRegion = void (*)(void (*body)(void*), void* data, unsigned threads, unsigned flags);
ParallelRegion parallel_region() {
  static const ParallelRegion found = [] {
    void* torch = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
    return torch ? reinterpret_cast<ParallelRegion>(dlsym(torch, "GOMP_parallel")) : nullptr;
  }();
  return found;
}

// The same where the library has another interface: TensorIterator's loop is inside PyTorch. It
// walks a tensor of bytes that nobody touches, and their places are the numbers.
void walk_on_threads(int64_t parts, const Body& body, ThreadErrors& errors) {
  char* const first = reinterpret_cast<char*>(uintptr_t{1} << 20);
  at::Tensor numbers = at::from_blob(first, {parts}, c10::kByte);
  at::TensorIterator iterator = at::TensorIterator::nullary_op(numbers);
  iterator.for_each(
      [&](char** data, const int64_t*, int64_t count, int64_t) {
        for (int64_t i = 0; i < count; ++i) errors.run(body, data[0] - first + i);
      },
      1);
}

// What PyTorch's C interface says of the stream in use on a GPU.
[[maybe_unused]] void* current_cuda_stream(int32_t index) {
  using Function = int32_t (*)(int32_t index, void** stream);
  static const Function function = [] {
    void* torch = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
    return torch ? reinterpret_cast<Function>(dlsym(torch, "aoti_torch_get_current_cuda_stream"))
                 : nullptr;
  }();
  void* stream = nullptr;
  SMELT_CHECK(function && function(index, &stream) == 0, "this PyTorch does not tell its stream");
  return stream;
}

// Streams of PyTorch before 2.12 do not have the driver's name for them.
template <class Stream>
void* native_handle(const Stream& stream) {
  if constexpr (requires { stream.native_handle(); })
    return stream.native_handle();
  else
    return current_cuda_stream(stream.device_index());
}

class AtenHost final : public Host {
 public:
  int threads() const override { return at::in_parallel_region() ? 1 : at::get_num_threads(); }

  void run(int64_t parts, const Body& body) override {
    ThreadErrors errors;
    if (const ParallelRegion region = parallel_region())
      run_in(region, parts, body, errors);
    else
      walk_on_threads(parts, body, errors);
    errors.rethrow();
  }

  std::byte* scratch(size_t bytes) override {
    constexpr size_t kPage = 4096;
    thread_local c10::DataPtr memory;
    thread_local size_t size = 0;
    if (bytes > size) {
      size = 0;
      memory.clear();
      const size_t wanted = (bytes + kPage - 1) / kPage * kPage;
      memory = c10::GetCPUAllocator()->allocate(wanted + kPage);  // or PyTorch's exception
      size = wanted;
    }
    const auto address = reinterpret_cast<uintptr_t>(memory.get());
    return reinterpret_cast<std::byte*>((address + kPage - 1) / kPage * kPage);
  }

  void* stream(const Device& device) override {
    const c10::Device where = to_c10(device);
    return native_handle(c10::impl::VirtualGuardImpl(where.type()).getStream(where));
  }

  std::shared_ptr<void> device_memory(const Device& device, size_t bytes) override {
    const c10::Device where = to_c10(device);
    const c10::DeviceGuard current(where);
    c10::DataPtr memory = c10::GetAllocator(where.type())->allocate(bytes);
    void* const address = memory.mutable_get();
    const auto held = std::make_shared<c10::DataPtr>(std::move(memory));
    return {held, address};
  }

 private:
  static void run_in(ParallelRegion region, int64_t parts, const Body& body, ThreadErrors& errors) {
    struct Work {
      const Body& body;
      ThreadErrors& errors;
      const int64_t parts;
      std::atomic<int64_t> next = 0;
    } work{body, errors, parts};
    // There may be fewer threads than were asked for.
    const auto run = [](void* data) {
      auto& work = *static_cast<Work*>(data);
      for (int64_t part = work.next++; part < work.parts; part = work.next++)
        work.errors.run(work.body, part);
    };
    region(run, &work, static_cast<unsigned>(std::min<int64_t>(parts, at::get_num_threads())), 0);
  }
};

}  // namespace

Host& aten_host() {
  static AtenHost host;
  return host;
}

}  // namespace smelt
