// Random kernels, their machine code against the interpreter.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "codegen/cpu/against_interpreter_test.h"
#include "codegen/cpu/cpu_module.h"
#include "loops/random_kernel.h"
#include "loops/simplify.h"

namespace smelt::cpu {
namespace {

// SMELT_RANDOM_KERNELS=5000 for a longer run.
uint64_t cases() {
  const char* text = std::getenv("SMELT_RANDOM_KERNELS");
  return text ? std::strtoull(text, nullptr, 10) : 300;
}

// Widths and contraction take turns.
CpuOptions options_of(uint64_t seed) {
  constexpr int kBits[] = {0, 256, 128};
  return {.contract = seed % 2 == 0, .vector_bits = kBits[seed / 2 % 3]};
}

void expect_same(loops::RandomCase expected, uint64_t seed) {
  SCOPED_TRACE("seed " + std::to_string(seed) + "\n" + expected.kernel.str());
  const CpuOptions options = options_of(seed);
  ASSERT_EQ(can_compile_cpu(expected.kernel).reason(), "");
  loops::RandomCase found = expected;
  const bool expected_good = loops::interpret(expected);
  KernelData data{found.buffers, found.sizes, found.params};
  std::mt19937_64 random(seed);
  const bool good = run_compiled(found.kernel, data, options, found.symbols, random);
  ASSERT_EQ(good, expected_good);
  if (!good) return;
  ASSERT_EQ(loops::difference(expected.kernel, expected.buffers, data.buffers), "");
}

TEST(RandomKernels, KnownSizes) {
  for (uint64_t seed = 0; seed < cases(); ++seed) {
    expect_same(loops::random_case(seed), seed);
    if (HasFatalFailure()) return;
  }
}

TEST(RandomKernels, Simplified) {
  for (uint64_t seed = 0; seed < cases(); ++seed) {
    loops::RandomCase random = loops::random_case(seed);
    loops::simplify(random.kernel);
    expect_same(std::move(random), seed);
    if (HasFatalFailure()) return;
  }
}

TEST(RandomKernels, UnknownSizes) {
  for (uint64_t seed = 0; seed < cases(); ++seed) {
    expect_same(loops::random_symbolic_case(seed), seed);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace smelt::cpu
