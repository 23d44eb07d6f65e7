#include "bridge/launch.h"

#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/SmallVector.h>
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>

#include "base/error.h"

namespace smelt {
namespace {

// Cycles below which waking another thread costs more than it brings.
constexpr int64_t kWorthAThread = 30'000;

// Memory of this thread that kernels use between two instructions of their own.
std::byte* scratch_of_thread(size_t bytes) {
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

// An exception must not leave its thread; the first one is thrown when all threads are done.
class ThreadErrors {
 public:
  template <class Body>
  void keep(const Body& body) {
    try {
      body();
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
template <class Body>
void walk_on_threads(int64_t parts, const Body& body) {
  char* const first = reinterpret_cast<char*>(uintptr_t{1} << 20);
  at::Tensor numbers = at::from_blob(first, {parts}, c10::kByte);
  at::TensorIterator iterator = at::TensorIterator::nullary_op(numbers);
  iterator.for_each(
      [&](char** data, const int64_t*, int64_t count, int64_t) {
        for (int64_t i = 0; i < count; ++i) body(data[0] - first + i);
      },
      1);
}

// body(0) ... body(parts - 1) on PyTorch's threads, each once.
template <class Body>
void on_threads(int64_t parts, const Body& body) {
  const ParallelRegion region = parallel_region();
  if (!region) return walk_on_threads(parts, body);
  struct Work {
    const Body& body;
    const int64_t parts;
    std::atomic<int64_t> next = 0;
  } work{body, parts};
  // There may be fewer threads than were asked for.
  const auto run = [](void* data) {
    auto& work = *static_cast<Work*>(data);
    for (int64_t part = work.next++; part < work.parts; part = work.next++) work.body(part);
  };
  region(run, &work, static_cast<unsigned>(std::min<int64_t>(parts, at::get_num_threads())), 0);
}

// The units of a kernel, shared by threads where that is worth it.
bool run_units(const KernelCode& kernel, void* const* buffers, const int64_t* sizes,
               std::span<const int64_t> symbols) {
  const int64_t units = kernel.units.evaluate(symbols);
  if (units == 0) return true;
  const auto run = [&](int64_t begin, int64_t end) {
    return kernel.run(buffers, sizes, nullptr, begin, end,
                      kernel.scratch_bytes ? scratch_of_thread(kernel.scratch_bytes) : nullptr);
  };
  const int64_t cost = std::max<int64_t>(1, kernel.unit_cost.evaluate(symbols));
  const int64_t grain = std::max<int64_t>(1, kWorthAThread / cost);
  if (kernel.ordered || units <= grain || at::in_parallel_region()) return run(0, units);
  const int64_t parts = std::min<int64_t>(at::get_num_threads(), (units + grain - 1) / grain);
  if (parts <= 1) return run(0, units);
  std::atomic<bool> good = true;
  ThreadErrors errors;
  on_threads(parts, [&](int64_t part) {
    errors.keep([&] {
      if (!run(units * part / parts, units * (part + 1) / parts))
        good.store(false, std::memory_order_relaxed);
    });
  });
  errors.rethrow();
  return good;
}

// A kernel of several that are launched together. Its units stand behind those of the others on one
// line, each as long as it is dear.
struct Work {
  Launch what;
  std::vector<int64_t> sizes;
  int64_t units = 0, cost = 1;
  int64_t whole = 1;  // of one that can't be cut: how many units are its only one
  int64_t begin = 0;  // on the line

  int64_t end() const { return begin + units * cost; }
  // Runs the units that begin in [from, to) of the line.
  bool run(int64_t from, int64_t to) const {
    const auto unit_at = [&](int64_t place) {
      return std::clamp<int64_t>((place - begin + cost - 1) / cost, 0, units);
    };
    const int64_t first = from <= begin ? 0 : unit_at(from), last = to <= begin ? 0 : unit_at(to);
    return first >= last || run_units(first, last);
  }

  bool run_units(int64_t first, int64_t last) const {
    const KernelCode& kernel = *what.kernel;
    if (kernel.interpret) return kernel.interpret(what.buffers, sizes.data());
    return kernel.run(what.buffers, sizes.data(), nullptr, first, last * whole,
                      kernel.scratch_bytes ? scratch_of_thread(kernel.scratch_bytes) : nullptr);
  }
};

Work work_of(const Launch& launch, std::span<const int64_t> symbols, int64_t begin) {
  const KernelCode& kernel = *launch.kernel;
  Work work;
  work.what = launch;
  work.begin = begin;
  for (const Size& size : kernel.sizes) work.sizes.push_back(size.evaluate(symbols));
  if (kernel.interpret) {
    work.units = 1;
    return work;
  }
  work.units = kernel.units.evaluate(symbols);
  work.cost = std::max<int64_t>(1, kernel.unit_cost.evaluate(symbols));
  if (kernel.ordered && work.units > 0) {
    work.whole = work.units;
    work.cost *= work.units;
    work.units = 1;
  }
  return work;
}

// Pieces of work per thread: enough that threads which were held up do not hold up the others.
constexpr int64_t kPieces = 8;

}  // namespace

bool launch_all(std::span<const Launch> launches, std::span<const int64_t> symbols) {
  std::vector<Work> works;
  works.reserve(launches.size());
  int64_t total = 0;
  bool interpreted = false;
  for (const Launch& one : launches) {
    if (one.kernel->finish) {  // has a second part, which waits for all of the first
      if (!launch(*one.kernel, {one.buffers, one.kernel->buffers.size()}, symbols)) return false;
      continue;
    }
    works.push_back(work_of(one, symbols, total));
    total = works.back().end();
    interpreted |= static_cast<bool>(one.kernel->interpret);
  }
  std::atomic<bool> good = true;
  const auto run = [&](int64_t from, int64_t to) {
    // The last that begins at `from` or before, or else the first.
    auto work = std::upper_bound(works.begin(), works.end(), from,
                                 [](int64_t place, const Work& w) { return place < w.begin; });
    if (work != works.begin()) --work;
    for (; work != works.end() && work->begin < to; ++work)
      if (!work->run(from, to)) good.store(false, std::memory_order_relaxed);
  };
  const int64_t threads = at::get_num_threads();
  const int64_t pieces = std::min(total / kWorthAThread, kPieces * threads);
  if (interpreted || pieces <= 1 || threads == 1 || at::in_parallel_region()) {
    run(0, total);
    return good;
  }
  ThreadErrors errors;
  on_threads(pieces, [&](int64_t piece) {
    errors.keep([&] { run(total * piece / pieces, total * (piece + 1) / pieces); });
  });
  errors.rethrow();
  return good;
}

bool launch(const KernelCode& kernel, std::span<void* const> buffers,
            std::span<const int64_t> symbols) {
  c10::SmallVector<int64_t, 8> sizes;
  for (const Size& size : kernel.sizes) sizes.push_back(size.evaluate(symbols));
  if (kernel.interpret) return kernel.interpret(buffers.data(), sizes.data());
  if (!kernel.finish) return run_units(kernel, buffers.data(), sizes.data(), symbols);
  c10::SmallVector<void*, 16> with_partial(buffers.begin(), buffers.end());
  with_partial.push_back(scratch_of_thread(kernel.partial_bytes));
  return run_units(kernel, with_partial.data(), sizes.data(), symbols) &&
         kernel.finish(with_partial.data(), sizes.data(), nullptr, 0, kernel.finish_units, nullptr);
}

}  // namespace smelt
