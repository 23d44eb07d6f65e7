// Machine code of the CPU back end on one thread: bandwidth of pointwise kernels beside memcpy, row
// and column kernels, and what compiling them takes.
//
// "small" stays in the second-level cache, "large" is beyond the last level. CPU time is what
// counts; bytes are those a kernel has to read and write once.
//
// "stream" rows are large ones on all threads: each walks its part of the arrays in pieces of about
// a megabyte, and copies as many bytes of other arrays, with stores past the caches, after each. So
// what else the machine does falls on both. Of all pieces the middle one counts: GB/s on all
// threads, and the kernel's share of the copy's (must hold: 0.8). in_cache_ns is the time per
// element of the same kernel on one thread where nothing waits for memory, copy_ns a thread's time
// for copying an element's bytes: while the first is less, memory is what the kernel waits for.
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>
#include <immintrin.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "codegen/cpu/cpu_module.h"
#include "cpu_kernel_texts.h"
#include "loops/kernel.h"

namespace {

using smelt::loops::Buffer;
using smelt::loops::Kernel;
using namespace kernel_texts;

struct Loaded {
  std::shared_ptr<const smelt::CpuModule> module;
  std::vector<std::unique_ptr<std::byte[]>> memory;
  std::vector<void*> buffers;
  std::vector<std::byte> scratch;
  int64_t bytes = 0;     // without scratch
  int64_t elements = 0;  // of the largest buffer
};

Loaded load(const std::string& source) {
  const Kernel kernel = Kernel::parse(source);
  const Kernel* const one[] = {&kernel};
  Loaded loaded;
  loaded.module = smelt::compile_cpu(one, {});
  for (const Buffer& buffer : kernel.buffers) {
    const int64_t bytes = buffer.elements.known() * smelt::bytes_of(buffer.dtype);
    std::unique_ptr<std::byte[]> memory(new std::byte[bytes + 64]);
    const auto address = (reinterpret_cast<uintptr_t>(memory.get()) + 63) & ~uintptr_t{63};
    loaded.memory.push_back(std::move(memory));
    loaded.buffers.push_back(reinterpret_cast<void*>(address));
    std::memset(loaded.buffers.back(), 1, static_cast<size_t>(bytes));
    if (buffer.kind != Buffer::Kind::scratch) loaded.bytes += bytes;
    loaded.elements = std::max(loaded.elements, buffer.elements.known());
  }
  return loaded;
}

void run(benchmark::State& state, const std::string& source) {
  Loaded loaded = load(source);
  const smelt::UnitKernel& kernel = loaded.module->kernel(0);
  const int64_t units = kernel.units.known();
  loaded.scratch.resize(std::max(kernel.scratch_bytes, kernel.partial_bytes) + 64);
  loaded.buffers.push_back(loaded.scratch.data());
  for (auto _ : state) {
    kernel.run(loaded.buffers.data(), nullptr, nullptr, 0, units, loaded.scratch.data());
    if (kernel.finish)
      kernel.finish(loaded.buffers.data(), nullptr, nullptr, 0, kernel.finish_units, nullptr);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * loaded.bytes);
  state.counters["units"] = static_cast<double>(units);
  state.counters["unit_cost"] = static_cast<double>(kernel.unit_cost.known());
}

void memory_copy(benchmark::State& state, int64_t n) {
  std::vector<float> from(n, 1), to(n, 2);
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), n * sizeof(float));
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * n * 8);
}

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// STREAM's copy with stores past the caches.
double copy_seconds(const std::byte* from, std::byte* to, int64_t bytes) {
  const auto start = Clock::now();
  for (int64_t i = 0; i < bytes; i += 16)
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm_load_si128(reinterpret_cast<const __m128i*>(from + i)));
  _mm_sfence();
  return seconds_since(start);
}

double kernel_seconds(const Loaded& loaded, int64_t begin, int64_t end, std::byte* scratch) {
  const auto start = Clock::now();
  loaded.module->kernel(0).run(loaded.buffers.data(), nullptr, nullptr, begin, end, scratch);
  return seconds_since(start);
}

struct Pieces {
  std::vector<double> kernel, copy;  // seconds of each
};

// One thread's part: units [begin, end) of the kernel, `step` at a time, each followed by a copy of
// as many bytes.
void walk_pieces(const Loaded& loaded, const Loaded& copied, int64_t begin, int64_t end,
                 int64_t step, Pieces& pieces) {
  const smelt::UnitKernel& kernel = loaded.module->kernel(0);
  const int64_t units = kernel.units.known();
  std::vector<std::byte> scratch(kernel.scratch_bytes + 64);
  const int64_t half = loaded.bytes / 2 / units * step / 64 * 64;  // read, and as much written
  auto* from =
      static_cast<std::byte*>(copied.buffers[0]) + loaded.bytes / 2 / units * begin / 64 * 64;
  auto* to = static_cast<std::byte*>(copied.buffers[1]) +
             (from - static_cast<std::byte*>(copied.buffers[0]));
  for (int64_t unit = begin; unit + step <= end; unit += step, from += half, to += half) {
    pieces.kernel.push_back(kernel_seconds(loaded, unit, unit + step, scratch.data()));
    pieces.copy.push_back(copy_seconds(from, to, half));
  }
}

double middle(std::vector<double>& numbers) {
  std::nth_element(numbers.begin(), numbers.begin() + numbers.size() / 2, numbers.end());
  return numbers[numbers.size() / 2];
}

// Per element of the largest buffer, at its best.
double in_cache_ns(const std::string& source) {
  Loaded loaded = load(source);
  const smelt::UnitKernel& kernel = loaded.module->kernel(0);
  std::vector<std::byte> scratch(std::max(kernel.scratch_bytes, kernel.partial_bytes) + 64);
  loaded.buffers.push_back(scratch.data());
  double best = 1e9;
  for (int i = 0; i < 2000; ++i)
    best = std::min(best, kernel_seconds(loaded, 0, kernel.units.known(), scratch.data()));
  return best * 1e9 / static_cast<double>(loaded.elements);
}

void stream(benchmark::State& state, const std::string& large, const std::string& small) {
  Loaded loaded = load(large);
  const Loaded copied = load(copy_text(loaded.bytes / 8));
  const int64_t units = loaded.module->kernel(0).units.known(), threads = at::get_num_threads();
  std::vector<std::byte> partial(loaded.module->kernel(0).partial_bytes + 64);
  loaded.buffers.push_back(partial.data());
  const int64_t step = std::max<int64_t>(1, units * (1 << 20) / loaded.bytes);
  std::vector<Pieces> of_thread(threads);
  for (auto _ : state) {
    std::vector<std::thread> running;
    for (int64_t t = 0; t < threads; ++t)
      running.emplace_back([&, t] {
        walk_pieces(loaded, copied, units * t / threads, units * (t + 1) / threads, step,
                    of_thread[t]);
      });
    for (std::thread& thread : running) thread.join();
  }
  Pieces all;
  for (const Pieces& pieces : of_thread) {
    all.kernel.insert(all.kernel.end(), pieces.kernel.begin(), pieces.kernel.end());
    all.copy.insert(all.copy.end(), pieces.copy.begin(), pieces.copy.end());
  }
  const double kernel = middle(all.kernel), copy = middle(all.copy);
  const double bytes = static_cast<double>(loaded.bytes) * step / units;
  const double elements = static_cast<double>(loaded.elements) * step / units;
  state.counters["kernel_GB/s"] = bytes * threads / kernel * 1e-9;
  state.counters["copy_GB/s"] = bytes * threads / copy * 1e-9;
  state.counters["share"] = copy / kernel;
  state.counters["ns"] = kernel * 1e9 / elements;
  state.counters["copy_ns"] = copy * 1e9 / elements;
  state.counters["in_cache_ns"] = in_cache_ns(small);
  state.counters["threads"] = static_cast<double>(threads);
}

// A kernel that no earlier one equals, each time: the first buffer grows.
void compile(benchmark::State& state, const std::string& source) {
  Kernel kernel = Kernel::parse(source);
  const Kernel* const one[] = {&kernel};
  for (auto _ : state) {
    kernel.buffers[0].elements = kernel.buffers[0].elements + 1;
    benchmark::DoNotOptimize(smelt::compile_cpu(one, {}));
  }
}

void register_streams(int64_t n) {
  constexpr int64_t kSmall = 1 << 13;
  auto add = [&](const char* name, const std::string& large, const std::string& small) {
    benchmark::RegisterBenchmark((std::string("stream/") + name).c_str(), [=](benchmark::State& s) {
      stream(s, large, small);
    })->Iterations(3);
  };
  add("copy", copy_text(n), copy_text(kSmall));
  add("add", add_text(n), add_text(kSmall));
  add("chain", chain_text(n, "f32"), chain_text(kSmall, "f32"));
  add("chain_bf16", chain_text(n, "bf16"), chain_text(kSmall, "bf16"));
  add("silu_bf16", silu_bf16_text(n), silu_bf16_text(kSmall));
  add("gelu", gelu_text(n), gelu_text(kSmall));
  add("softmax", softmax_text(n / 1000, 1000), softmax_text(8, 1000));
  add("layer_norm", layer_norm_text(n / 1000, 1000), layer_norm_text(8, 1000));
  add("sum", sum_text(1, n, false), sum_text(1, kSmall, false));
  add("column_sum", sum_text(n / 64, 64, true), sum_text(kSmall / 64, 64, true));
}

void register_all() {
  constexpr int64_t kSmall = 1 << 16, kLarge = 1 << 27;
  auto add = [](const std::string& name, const std::string& source) {
    benchmark::RegisterBenchmark(("run/" + name).c_str(),
                                 [source](benchmark::State& s) { run(s, source); });
  };
  for (const auto& [size, n] : {std::pair{"small", kSmall}, {"large", kLarge}}) {
    benchmark::RegisterBenchmark((std::string("memcpy/") + size).c_str(),
                                 [n](benchmark::State& s) { memory_copy(s, n); });
    add(std::string("copy/") + size, copy_text(n));
    add(std::string("add/") + size, add_text(n));
    add(std::string("silu_bf16/") + size, silu_bf16_text(n));
    add(std::string("gelu/") + size, gelu_text(n));
  }
  register_streams(kLarge);
  add("softmax/64x1024", softmax_text(64, 1024));
  add("softmax/1024x64", softmax_text(1024, 64));
  add("layer_norm/64x768", layer_norm_text(64, 768));
  add("layer_norm/64x770", layer_norm_text(64, 770));
  add("row_sum/64x1024", sum_text(64, 1024, false));
  add("row_sum/8192x8", sum_text(8192, 8, false));
  add("row_sum/1x1000000", sum_text(1, 1000000, false));
  add("column_sum/1024x64", sum_text(1024, 64, true));
  add("column_sum/256x1024", sum_text(256, 1024, true));
  add("column_sum/8192x4096", sum_text(8192, 4096, true));
  add("transpose/256x256", transpose_text(256, 256));
  add("transpose/4096x4096", transpose_text(4096, 4096));
  for (const auto& [name, source] : {std::pair{"copy", copy_text(kSmall)},
                                     {"gelu", gelu_text(kSmall)},
                                     {"softmax", softmax_text(64, 1000)},
                                     {"layer_norm", layer_norm_text(64, 770)},
                                     {"column_sum", sum_text(256, 1000, true)}})
    benchmark::RegisterBenchmark((std::string("compile/") + name).c_str(),
                                 [source = source](benchmark::State& s) { compile(s, source); });
}

const bool registered = (register_all(), true);

}  // namespace
