#include "codegen/cpu/against_interpreter_test.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <deque>
#include <limits>

#include "base/error.h"
#include "loops/interpret.h"
#include "loops/scalar.h"

namespace smelt::cpu {
namespace {

using loops::Buffer;
using loops::Inst;
using loops::Kernel;
using loops::Op;

double read(const std::byte* at, DType dtype) {
  auto as = [&]<class T>(T value) {
    std::memcpy(&value, at, sizeof value);
    return static_cast<double>(value);
  };
  switch (dtype) {
    case DType::f64: return as(double{});
    case DType::f32: return as(float{});
    case DType::f16: {
      uint16_t bits;
      std::memcpy(&bits, at, 2);
      return loops::from_f16_bits(bits);
    }
    case DType::bf16: {
      uint16_t bits;
      std::memcpy(&bits, at, 2);
      return loops::from_bf16_bits(bits);
    }
    case DType::i64: return as(int64_t{});
    case DType::i32: return as(int32_t{});
    case DType::i16: return as(int16_t{});
    case DType::i8: return as(int8_t{});
    default: return as(uint8_t{});
  }
}

void write(std::byte* at, DType dtype, double number) {
  auto as = [&](auto value) { std::memcpy(at, &value, sizeof value); };
  switch (dtype) {
    case DType::f64: return as(number);
    case DType::f32: return as(static_cast<float>(number));
    case DType::f16: return as(loops::f16_bits(static_cast<float>(number)));
    case DType::bf16: return as(loops::bf16_bits(static_cast<float>(number)));
    case DType::i64: return as(static_cast<int64_t>(number));
    case DType::i32: return as(static_cast<int32_t>(number));
    case DType::i16: return as(static_cast<int16_t>(number));
    case DType::i8: return as(static_cast<int8_t>(number));
    case DType::u8: return as(static_cast<uint8_t>(static_cast<int64_t>(number)));
    default: return as(static_cast<uint8_t>(number > 0));
  }
}

double random_number(DType dtype, std::mt19937_64& random, bool special) {
  if (is_floating(dtype)) {
    if (special && random() % 16 == 0) {
      constexpr double kSpecial[] = {0.0, -0.0, INFINITY, -INFINITY, NAN, 1e-40, 1.0, 2.0};
      return kSpecial[random() % std::size(kSpecial)];
    }
    return std::uniform_real_distribution<>(-2, 2)(random);
  }
  if (dtype == DType::u8) return static_cast<double>(random() % 7);
  return static_cast<double>(random() % 13) - (dtype == DType::b8 ? 6 : 5);
}

// How far a result may be off: nothing, unless sums are in another order, functions are
// approximated, or products are contracted.
double tolerance(const Kernel& kernel, DType dtype, bool contract) {
  if (!is_floating(dtype)) return 0;
  bool exact = !contract;
  for (const Inst& inst : kernel.insts) {
    if (inst.op == Op::reduce && is_floating(kernel.insts[inst.args[0]].dtype)) exact = false;
    if (inst.op == Op::accumulate) exact = false;
    if (loops::facts_of(inst.op).typing == loops::Typing::floating) exact = false;
  }
  if (exact) return 0;
  switch (dtype) {
    case DType::f64:
      // Values may have been f32 on the way.
      for (const Inst& inst : kernel.insts)
        if (inst.dtype == DType::f32) return 2e-4;
      return 1e-9;
    case DType::f32: return 2e-4;
    case DType::f16: return 2e-3;
    default: return 1.6e-2;
  }
}

bool agree(double a, double b, double tolerance) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  if (a == b) return true;
  return std::abs(a - b) <= tolerance * (1 + std::abs(a) + std::abs(b));
}

// A copy of bytes that lies against a page nobody may touch: behind its end, or before its start.
class GuardedBytes {
 public:
  GuardedBytes(const std::vector<std::byte>& bytes, bool at_end) : size_(bytes.size()) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t inside = (std::max<size_t>(size_, 1) + page - 1) / page * page;
    whole_ = inside + 2 * page;
    base_ = mmap(nullptr, whole_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    SMELT_CHECK(base_ != MAP_FAILED, "no memory for a test");
    std::byte* const first = static_cast<std::byte*>(base_) + page;
    SMELT_CHECK(mprotect(first, inside, PROT_READ | PROT_WRITE) == 0, "no memory for a test");
    data_ = at_end ? first + inside - size_ : first;
    std::ranges::copy(bytes, data_);
  }
  ~GuardedBytes() { munmap(base_, whole_); }
  GuardedBytes(const GuardedBytes&) = delete;
  GuardedBytes& operator=(const GuardedBytes&) = delete;

  std::byte* data() const { return data_; }
  void copy_to(std::vector<std::byte>& bytes) const { std::copy_n(data_, size_, bytes.begin()); }

 private:
  size_t size_, whole_ = 0;
  void* base_ = nullptr;
  std::byte* data_ = nullptr;
};

std::vector<void*> pointers(const Kernel& kernel, KernelData& data) {
  std::vector<void*> buffers;
  for (size_t i = 0; i < data.buffers.size(); ++i)
    buffers.push_back(kernel.buffers[i].kind == Buffer::Kind::scratch ? nullptr
                                                                      : data.buffers[i].data());
  return buffers;
}

}  // namespace

KernelData random_data(const Kernel& kernel, const std::vector<int64_t>& symbols,
                       std::mt19937_64& random, bool special) {
  KernelData data;
  data.sizes = loops::evaluate(loops::size_params(kernel), symbols);
  for (const Buffer& buffer : kernel.buffers) {
    std::vector<std::byte> bytes;
    if (buffer.kind != Buffer::Kind::scratch) {
      const int64_t elements = buffer.elements.evaluate(symbols);
      const int width = bytes_of(buffer.dtype);
      bytes.resize(static_cast<size_t>(elements * width));
      for (int64_t i = 0; i < elements; ++i)
        write(bytes.data() + i * width, buffer.dtype, random_number(buffer.dtype, random, special));
    }
    data.buffers.push_back(std::move(bytes));
  }
  data.params.assign(static_cast<size_t>(kernel.params), 0);
  for (const Inst& inst : kernel.insts)
    if (inst.op == Op::param)
      data.params[inst.slot] = is_floating(inst.dtype) ? std::bit_cast<uint64_t>(1.5) : 3;
  return data;
}

bool run_compiled(const Kernel& kernel, KernelData& data, const CpuOptions& options,
                  const std::vector<int64_t>& symbols, std::mt19937_64& random) {
  const Kernel* const one[] = {&kernel};
  const auto module = compile_cpu(one, options);
  const UnitKernel& code = module->kernel(0);
  // Whatever is read or written outside of a buffer ends the test.
  const bool at_end = random() % 4 != 0;
  std::deque<GuardedBytes> memory;
  std::vector<void*> buffers = pointers(kernel, data);
  for (size_t i = 0; i < buffers.size(); ++i)
    if (buffers[i]) buffers[i] = memory.emplace_back(data.buffers[i], at_end).data();
  constexpr size_t kLine = 64;  // scratch is aligned to that
  const size_t own = std::max(code.scratch_bytes, code.partial_bytes);
  const GuardedBytes own_memory(std::vector<std::byte>((own + kLine - 1) / kLine * kLine), at_end);
  std::byte* const scratch = own_memory.data();
  if (code.finish) buffers.push_back(scratch);
  const int64_t units = code.units.evaluate(symbols);
  bool good = true;
  for (int64_t begin = 0; begin < units;) {
    const auto length = static_cast<int64_t>(random() % static_cast<uint64_t>(units)) + 1;
    const int64_t end = std::min(units, begin + length);
    good &= code.run(buffers.data(), data.sizes.data(), data.params.data(), begin, end, scratch);
    begin = end;
  }
  if (code.finish)
    good &= code.finish(buffers.data(), data.sizes.data(), data.params.data(), 0, code.finish_units,
                        nullptr);
  for (size_t i = 0, next = 0; i < data.buffers.size(); ++i)
    if (buffers[i]) memory[next++].copy_to(data.buffers[i]);
  return good;
}

std::string compare(const Kernel& kernel, const KernelData& data, const CpuOptions& options,
                    const std::vector<int64_t>& symbols, std::mt19937_64& random) {
  KernelData expected = data, found = data;
  std::vector<void*> expected_buffers = pointers(kernel, expected);
  const bool expected_good = loops::interpret(kernel, {expected_buffers, data.sizes, data.params});
  const bool good = run_compiled(kernel, found, options, symbols, random);
  const std::string how = "contract " + std::to_string(options.contract) + " vector_bits " +
                          std::to_string(options.vector_bits) + "\n" + kernel.str();
  if (good != expected_good) return "returned " + std::to_string(good) + ", " + how;
  for (size_t i = 0; i < kernel.buffers.size(); ++i) {
    const DType dtype = kernel.buffers[i].dtype;
    const double allowed = tolerance(kernel, dtype, options.contract);
    const auto width = static_cast<size_t>(bytes_of(dtype));
    for (size_t at = 0; at + width <= found.buffers[i].size(); at += width) {
      const double a = read(expected.buffers[i].data() + at, dtype),
                   b = read(found.buffers[i].data() + at, dtype);
      if (!agree(a, b, allowed))
        return "b" + std::to_string(i) + "[" + std::to_string(at / width) + "] is " +
               std::to_string(b) + ", not " + std::to_string(a) + ", " + how;
    }
  }
  return "";
}

std::string compare_all(const Kernel& kernel, const std::vector<int64_t>& symbols, uint64_t seed,
                        bool special) {
  kernel.verify();
  if (const Decision decision = can_compile_cpu(kernel); !decision) return decision.reason();
  std::mt19937_64 random(seed);
  const KernelData data = random_data(kernel, symbols, random, special);
  for (const bool contract : {false, true}) {
    for (const int bits : {0, 256, 128}) {
      for (const bool large : {false, true}) {
        const CpuOptions options{.contract = contract,
                                 .vector_bits = bits,
                                 .stream_bytes = large,
                                 .slice_points = large};
        const std::string difference = compare(kernel, data, options, symbols, random);
        if (!difference.empty()) return difference;
      }
    }
  }
  return "";
}

}  // namespace smelt::cpu
