// Machine code of the CPU back end on one thread: bandwidth of pointwise kernels beside memcpy, row
// and column kernels, and what compiling them takes.
//
// "small" stays in the second-level cache, "large" is beyond the last level. CPU time is what
// counts; bytes are those a kernel has to read and write once.
//
// "stream" rows are large ones on all threads, in turn with a copy of as many bytes on the same
// threads: GB/s of both at their best, and the kernel's share of the copy's. Must hold: 0.8.
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>
#include <immintrin.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "bridge/launch.h"
#include "codegen/cpu/cpu_module.h"
#include "loops/kernel.h"

namespace {

using smelt::loops::Buffer;
using smelt::loops::Kernel;

std::string text(int64_t number) { return std::to_string(number); }

std::string buffer(int number, const char* dtype, int64_t elements, const char* kind) {
  return "b" + text(number) + ": " + dtype + "[" + text(elements) + "] " + kind + "\n";
}

std::string copy_text(int64_t n) {
  return "kernel \"copy\" outer [" + text(n) + "] inner []\n" + buffer(0, "f32", n, "input") +
         buffer(1, "f32", n, "output") +
         "outer stage\n  v0: f32 = load b0[i0]\n  v1: f32 = neg v0\n  store b1[i0] = v1\nend\n";
}

std::string add_text(int64_t n) {
  return "kernel \"add\" outer [" + text(n) + "] inner []\n" + buffer(0, "f32", n, "input") +
         buffer(1, "f32", n, "input") + buffer(2, "f32", n, "output") +
         "outer stage\n  v0: f32 = load b0[i0]\n  v1: f32 = load b1[i0]\n  v2: f32 = add v0, v1\n"
         "  store b2[i0] = v2\nend\n";
}

std::string bf16_text(int64_t n) {
  return "kernel \"silu_bf16\" outer [" + text(n) + "] inner []\n" + buffer(0, "bf16", n, "input") +
         buffer(1, "bf16", n, "output") +
         "outer stage\n  v0: bf16 = load b0[i0]\n  v1: f32 = cast v0\n  v2: f32 = sigmoid v1\n"
         "  v3: f32 = mul v1, v2\n  v4: bf16 = cast v3\n  store b1[i0] = v4\nend\n";
}

std::string gelu_text(int64_t n) {
  return "kernel \"gelu\" outer [" + text(n) + "] inner []\n" + buffer(0, "f32", n, "input") +
         buffer(1, "f32", n, "output") +
         "outer stage\n  v0: f32 = load b0[i0]\n  v1: f32 = constant 0.7071067811865476\n"
         "  v2: f32 = mul v0, v1\n  v3: f32 = erf v2\n  v4: f32 = constant 1\n  v5: f32 = add v3, "
         "v4\n"
         "  v6: f32 = constant 0.5\n  v7: f32 = mul v5, v6\n  v8: f32 = mul v0, v7\n"
         "  store b1[i0] = v8\nend\n";
}

std::string softmax_text(int64_t rows, int64_t columns) {
  const std::string at = "[" + text(columns) + "*i0 + i1]";
  return "kernel \"softmax\" outer [" + text(rows) + "] inner [" + text(columns) + "]\n" +
         buffer(0, "f32", rows * columns, "input") + buffer(1, "f32", rows * columns, "output") +
         "inner stage\n  v0: f32 = load b0" + at + "\n  v1: f32 = reduce max v0\n" +
         "inner stage\n  v2: f32 = load b0" + at +
         "\n  v3: f32 = sub v2, v1\n  v4: f32 = exp v3\n" + "  store b1" + at +
         " = v4\n  v6: f32 = reduce sum v4\n" + "inner stage\n  v7: f32 = load b1" + at +
         "\n  v8: f32 = div v7, v6\n  store b1" + at + " = v8\nend\n";
}

std::string layer_norm_text(int64_t rows, int64_t columns) {
  const std::string at = "[" + text(columns) + "*i0 + i1]", n = text(columns);
  return "kernel \"layer_norm\" outer [" + text(rows) + "] inner [" + n + "]\n" +
         buffer(0, "f32", rows * columns, "input") + buffer(1, "f32", columns, "input") +
         buffer(2, "f32", columns, "input") + buffer(3, "f32", rows * columns, "output") +
         "inner stage\n  v0: f32 = load b0" + at + "\n  v1: f32 = reduce sum v0\n" +
         "outer stage\n  v2: f32 = constant " + n + "\n  v3: f32 = div v1, v2\n" +
         "inner stage\n  v4: f32 = load b0" + at +
         "\n  v5: f32 = sub v4, v3\n  v6: f32 = mul v5, v5\n" + "  v7: f32 = reduce sum v6\n" +
         "outer stage\n  v8: f32 = div v7, v2\n  v9: f32 = constant 1e-5\n" +
         "  v10: f32 = add v8, v9\n  v11: f32 = rsqrt v10\n" + "inner stage\n  v12: f32 = load b0" +
         at + "\n  v13: f32 = sub v12, v3\n  v14: f32 = mul v13, v11\n  v15: f32 = load b1[i1]\n" +
         "  v16: f32 = mul v14, v15\n  v17: f32 = load b2[i1]\n  v18: f32 = add v16, v17\n  store "
         "b3" +
         at + " = v18\nend\n";
}

std::string sum_text(int64_t rows, int64_t columns, bool of_columns) {
  const std::string at = of_columns ? text(columns) + "*i1 + i0" : text(columns) + "*i0 + i1";
  const int64_t outer = of_columns ? columns : rows, inner = of_columns ? rows : columns;
  return "kernel \"sum\" outer [" + text(outer) + "] inner [" + text(inner) + "]\n" +
         buffer(0, "f32", rows * columns, "input") + buffer(1, "f32", outer, "output") +
         "inner stage\n  v0: f32 = load b0[" + at + "]\n  v1: f32 = reduce sum v0\n" +
         "outer stage\n  store b1[i0] = v1\nend\n";
}

std::string transpose_text(int64_t rows, int64_t columns) {
  return "kernel \"transpose\" outer [" + text(columns) + ", " + text(rows) + "] inner []\n" +
         buffer(0, "f32", rows * columns, "input") + buffer(1, "f32", rows * columns, "output") +
         "outer stage\n  v0: f32 = load b0[" + text(columns) + "*i1 + i0]\n  store b1[" +
         text(rows) + "*i0 + i1] = v0\nend\n";
}

struct Loaded {
  std::shared_ptr<const smelt::CpuModule> module;
  std::vector<std::unique_ptr<std::byte[]>> memory;
  std::vector<void*> buffers;
  std::vector<std::byte> scratch;
  int64_t bytes = 0;
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
    loaded.bytes += bytes;
  }
  return loaded;
}

void run(benchmark::State& state, const std::string& source) {
  Loaded loaded = load(source);
  const smelt::CpuKernel& kernel = loaded.module->kernel(0);
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

smelt::KernelCode code_of(const smelt::CpuKernel& kernel) {
  smelt::KernelCode code;
  code.run = kernel.run;
  code.units = kernel.units;
  code.unit_cost = kernel.unit_cost;
  code.scratch_bytes = kernel.scratch_bytes;
  code.finish = kernel.finish;
  code.finish_units = kernel.finish_units;
  code.partial_bytes = kernel.partial_bytes;
  return code;
}

// STREAM's copy with stores past the caches: units of 4 KiB from buffers[0] to buffers[1].
bool copy_units(void* const* buffers, const int64_t*, const uint64_t*, int64_t begin, int64_t end,
                std::byte*) {
  const auto* from = static_cast<const float*>(buffers[0]);
  auto* to = static_cast<float*>(buffers[1]);
  for (int64_t i = begin * 1024; i < end * 1024; i += 4)
    _mm_stream_ps(to + i, _mm_load_ps(from + i));
  _mm_sfence();
  return true;
}

double seconds_of(const smelt::KernelCode& code, const std::vector<void*>& buffers) {
  const auto start = std::chrono::steady_clock::now();
  smelt::launch(code, buffers, {});
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void stream(benchmark::State& state, const std::string& source) {
  Loaded loaded = load(source);
  const Loaded copied = load(copy_text(loaded.bytes / 8 / 1024 * 1024));
  smelt::KernelCode copy;
  copy.run = copy_units;
  copy.units = copied.bytes / 8192;
  copy.unit_cost = 1000;
  const smelt::KernelCode code = code_of(loaded.module->kernel(0));
  double kernel_best = 1e9, copy_best = 1e9;
  for (auto _ : state) {
    kernel_best = std::min(kernel_best, seconds_of(code, loaded.buffers));
    copy_best = std::min(copy_best, seconds_of(copy, copied.buffers));
  }
  const double kernel_rate = static_cast<double>(loaded.bytes) / kernel_best,
               copy_rate = static_cast<double>(copied.bytes) / copy_best;
  state.counters["kernel_GB/s"] = kernel_rate * 1e-9;
  state.counters["copy_GB/s"] = copy_rate * 1e-9;
  state.counters["share"] = kernel_rate / copy_rate;
  state.counters["threads"] = at::get_num_threads();
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
    add(std::string("silu_bf16/") + size, bf16_text(n));
    add(std::string("gelu/") + size, gelu_text(n));
  }
  for (const auto& [name, source] : {std::pair{"copy", copy_text(kLarge)},
                                     {"add", add_text(kLarge)},
                                     {"silu_bf16", bf16_text(kLarge)},
                                     {"gelu", gelu_text(kLarge)},
                                     {"softmax", softmax_text(kLarge / 1000, 1000)},
                                     {"sum", sum_text(1, kLarge, false)},
                                     {"column_sum", sum_text(kLarge / 64, 64, true)}})
    benchmark::RegisterBenchmark((std::string("stream/") + name).c_str(), [source = source](
                                                                              benchmark::State& s) {
      stream(s, source);
    })->Iterations(10);
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
