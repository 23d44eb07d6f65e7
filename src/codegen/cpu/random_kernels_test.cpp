// Random kernels, their machine code against the interpreter.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>

#include "codegen/cpu/against_interpreter_test.h"
#include "codegen/cpu/cpu_module.h"
#include "loops/random/random_kernel.h"
#include "loops/simplify.h"

namespace smelt::cpu {
namespace {

// All of them together; SMELT_RANDOM_KERNELS=100000 for a longer run.
uint64_t cases() {
  const char* text = std::getenv("SMELT_RANDOM_KERNELS");
  return text ? std::strtoull(text, nullptr, 10) : 5001;
}

// Widths, contraction, and what only large kernels get, take turns.
CpuOptions options_of(uint64_t seed) {
  constexpr int kBits[] = {0, 256, 128};
  const bool large = seed / 6 % 2 == 0;
  return {.contract = seed % 2 == 0,
          .vector_bits = kBits[seed / 2 % 3],
          .stream_bytes = large,
          .slice_points = large};
}

void expect_same(loops::RandomCase expected, uint64_t seed) {
  SCOPED_TRACE("seed " + std::to_string(seed) + "\n" + expected.kernel.str());
  const CpuOptions options = options_of(seed);
  const bool draws = std::ranges::any_of(expected.kernel.insts, [](const loops::Inst& inst) {
    return inst.op == loops::Op::random_bits || inst.op == loops::Op::random_normal;
  });
  ASSERT_EQ(can_compile_cpu(expected.kernel).reason(), draws ? "random numbers of a GPU" : "");
  if (draws) return;
  loops::RandomCase found = expected;
  const bool expected_good = loops::interpret(expected);
  KernelData data{found.buffers, found.sizes, found.params};
  std::mt19937_64 random(seed);
  const bool good = run_compiled(found.kernel, data, options, found.symbols, random);
  ASSERT_EQ(good, expected_good);
  if (!good) return;
  ASSERT_EQ(loops::difference(expected.kernel, expected.buffers, data.buffers), "");
}

// Each test has a third of the seeds, so that no two compile the same kernel.
template <class Make>
void expect_same(uint64_t first, const Make& make) {
  for (uint64_t seed = first; seed < cases(); seed += 3) {
    expect_same(make(seed), seed);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(RandomKernels, KnownSizes) { expect_same(0, loops::random_case); }

TEST(RandomKernels, Simplified) {
  expect_same(1, [](uint64_t seed) {
    loops::RandomCase random = loops::random_case(seed);
    loops::simplify(random.kernel);
    return random;
  });
}

TEST(RandomKernels, UnknownSizes) { expect_same(2, loops::random_symbolic_case); }

}  // namespace
}  // namespace smelt::cpu
