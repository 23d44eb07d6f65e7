// The texts of random kernels are CUDA C++ that NVRTC accepts. What they compute is compared with
// the interpreter on a GPU (tests/cuda/kernels.cpp).
#include <gtest/gtest.h>

#include <cstdlib>

#include "codegen/cuda/cuda_backend.h"
#include "codegen/cuda/joined_source.h"
#include "codegen/cuda/nvrtc_compile.h"
#include "codegen/cuda/nvrtc_test.h"
#include "codegen/cuda/source.h"
#include "loops/random/random_kernel.h"
#include "loops/simplify.h"

namespace smelt::cuda {
namespace {

// SMELT_RANDOM_KERNELS=2000 for a longer run.
uint64_t cases() {
  const char* text = std::getenv("SMELT_RANDOM_KERNELS");
  return text ? std::strtoull(text, nullptr, 10) : 48;
}

loops::Kernel random_kernel(uint64_t seed) {
  loops::Kernel kernel =
      seed % 3 == 2 ? loops::random_symbolic_case(seed).kernel : loops::random_case(seed).kernel;
  if (seed % 3 == 1) loops::simplify(kernel);
  kernel.name = "random_" + std::to_string(seed);
  return kernel;
}

// Several in one program: the compiler starts once for all of them.
void expect_compiles(const Variant& variant, uint64_t first) {
  constexpr uint64_t kTogether = 24;
  std::string text;
  for (uint64_t seed = first, count = 0; seed < cases(); ++seed) {
    const loops::Kernel kernel = random_kernel(seed);
    if (cuda_backend().can_compile(kernel)) {
      text += write_source(kernel, variant.contract, {.as_if_large = seed % 2 == 0}).text;
      ++count;
    }
    if (count < kTogether && seed + 1 < cases()) continue;
    EXPECT_NO_THROW(compile_text(text, variant));
    text.clear();
    count = 0;
  }
}

// Several of them as one kernel, each twice.
void expect_joined_compiles(const Variant& variant, uint64_t first) {
  constexpr size_t kTogether = 6;
  std::vector<Source> sources;
  for (uint64_t seed = first; seed < cases() && sources.size() < kTogether; ++seed) {
    const loops::Kernel kernel = random_kernel(seed);
    if (!cuda_backend().can_compile(kernel)) continue;
    Source source = write_source(kernel, variant.contract, {.as_if_large = seed % 2 == 0});
    if (source.facts.scratch_bytes.empty()) sources.push_back(std::move(source));
  }
  ASSERT_FALSE(sources.empty());
  std::vector<Body> all;
  std::vector<size_t> bodies;
  for (const Source& source : sources) {
    bodies.insert(bodies.end(), 2, all.size());
    all.push_back({&source.facts, &source.text});
  }
  EXPECT_NO_THROW(compile_text(write_joined(all, bodies, Half::main).text, variant));
}

TEST(RandomKernels, CompileWhenTheyAreJoined) {
  SMELT_NEEDS_NVRTC();
  expect_joined_compiles({.architecture = "sm_90"}, 0);
  expect_joined_compiles({.architecture = "sm_80"}, 12);
}

TEST(RandomKernels, CompileForAmpere) {
  SMELT_NEEDS_NVRTC();
  expect_compiles({.architecture = "sm_80"}, 0);
}

TEST(RandomKernels, CompileForHopper) {
  SMELT_NEEDS_NVRTC();
  expect_compiles({.architecture = "sm_90", .contract = false}, cases() / 2);
}

TEST(RandomKernels, CompileForBuffersThatAreNotAlignedAndForLongIndices) {
  SMELT_NEEDS_NVRTC();
  expect_compiles({.unaligned = true, .long_index = true}, cases() * 2 / 3);
}

}  // namespace
}  // namespace smelt::cuda
