#include "bridge/launch.h"

#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <vector>

#include "base/error.h"

namespace smelt {
namespace {

// Cycles below which waking another thread costs more than it brings.
constexpr int64_t kWorthAThread = 30'000;

// Memory of this thread that kernels use between two instructions of their own.
std::byte* scratch_of_thread(size_t bytes) {
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  thread_local std::unique_ptr<std::byte, Free> memory;
  thread_local size_t size = 0;
  if (bytes > size) {
    size = (bytes + 4095) / 4096 * 4096;
    memory.reset(static_cast<std::byte*>(std::aligned_alloc(4096, size)));
    if (!memory) {
      size = 0;
      throw std::bad_alloc();
    }
  }
  return memory.get();
}

// Calls `body` with parts of [0, units) on ATen's threads. at::parallel_for is a template over
// OpenMP: here it would be compiled with another OpenMP than PyTorch's, or with none, and run on
// one thread. TensorIterator's loop is inside PyTorch; the places of the bytes it walks are the
// numbers.
template <class Body>
void on_threads(int64_t units, int64_t grain, const Body& body) {
  at::TensorBase numbers = at::detail::empty_cpu({units}, c10::kByte);
  const char* const first = static_cast<const char*>(numbers.const_data_ptr());
  at::TensorIterator iterator = at::TensorIterator::nullary_op(numbers);
  iterator.for_each(
      [&](char** data, const int64_t*, int64_t count, int64_t) {
        const int64_t begin = data[0] - first;
        body(begin, begin + count);
      },
      grain);
}

}  // namespace

bool launch(const KernelCode& kernel, std::span<void* const> buffers,
            std::span<const int64_t> symbols) {
  std::vector<int64_t> sizes;
  for (const Size& size : kernel.sizes) sizes.push_back(size.evaluate(symbols));
  if (kernel.interpret) return kernel.interpret(buffers.data(), sizes.data());

  const int64_t units = kernel.units.evaluate(symbols);
  if (units == 0) return true;
  const int64_t cost = std::max<int64_t>(1, kernel.unit_cost.evaluate(symbols));
  const auto run = [&](int64_t begin, int64_t end) {
    return kernel.run(buffers.data(), sizes.data(), nullptr, begin, end,
                      kernel.scratch_bytes ? scratch_of_thread(kernel.scratch_bytes) : nullptr);
  };
  const int64_t grain = std::max<int64_t>(1, kWorthAThread / cost);
  if (kernel.ordered || units <= grain || at::in_parallel_region() || at::get_num_threads() == 1)
    return run(0, units);
  std::atomic<bool> good = true;
  on_threads(units, grain, [&](int64_t begin, int64_t end) {
    if (!run(begin, end)) good.store(false, std::memory_order_relaxed);
  });
  return good;
}

}  // namespace smelt
