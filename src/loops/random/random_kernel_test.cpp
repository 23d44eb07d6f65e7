// Passes and the text form on thousands of random kernels, against the interpreter.
#include "loops/random/random_kernel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <set>

#include "loops/interpret.h"
#include "loops/simplify.h"

namespace smelt::loops {
namespace {

// SMELT_RANDOM_KERNELS=5000 for a longer run.
uint64_t cases() {
  const char* text = std::getenv("SMELT_RANDOM_KERNELS");
  return text ? std::strtoull(text, nullptr, 10) : 150;
}

void expect_same_after(const std::function<void(Kernel&)>& pass, RandomCase original,
                       uint64_t seed) {
  RandomCase changed = original;
  std::string before = original.kernel.str();
  pass(changed.kernel);
  SCOPED_TRACE("seed " + std::to_string(seed) + "\n" + before + "became\n" + changed.kernel.str());
  changed.kernel.verify();
  changed.sizes = evaluate(size_params(changed.kernel), changed.symbols);
  bool ok = interpret(original);
  ASSERT_EQ(ok, interpret(changed));
  if (!ok) return;
  ASSERT_EQ(difference(original.kernel, original.buffers, changed.buffers), "");
}

TEST(RandomKernel, IsTheSameForTheSameSeed) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    RandomCase a = random_case(seed), b = random_case(seed);
    EXPECT_EQ(a.kernel.str(), b.kernel.str());
    EXPECT_EQ(a.buffers, b.buffers);
    EXPECT_EQ(a.params, b.params);
  }
}

TEST(RandomKernel, CoversOpsReductionsAndTypes) {
  std::set<Op> ops;
  std::set<Reduction> reductions;
  std::set<DType> dtypes;
  int failures = 0;
  uint64_t count = std::max<uint64_t>(cases(), 800);
  for (uint64_t seed = 0; seed < count; ++seed) {
    RandomCase random = random_case(seed);
    for (const Inst& inst : random.kernel.insts) {
      ops.insert(inst.op);
      dtypes.insert(inst.dtype);
      if (inst.op == Op::reduce) reductions.insert(inst.reduction);
    }
    failures += !interpret(random);
  }
  EXPECT_EQ(ops.size(), static_cast<size_t>(Op::sigmoid) + 1);
  EXPECT_EQ(reductions.size(), 8u);
  EXPECT_EQ(dtypes.size(), 10u);
  // Some must fail, but those say little.
  EXPECT_GT(failures, 0);
  EXPECT_LT(failures, static_cast<int>(count) / 10);
}

TEST(RandomKernel, TextRoundTrips) {
  for (uint64_t seed = 0; seed < cases(); ++seed) {
    for (const RandomCase& random : {random_case(seed), random_symbolic_case(seed)}) {
      std::string text = random.kernel.str();
      Kernel again = Kernel::parse(text);
      ASSERT_EQ(again.str(), text) << "seed " << seed;
      ASSERT_EQ(again.hash(), random.kernel.hash()) << "seed " << seed << "\n" << text;
    }
  }
}

class Passes : public testing::TestWithParam<std::pair<const char*, void (*)(Kernel&)>> {};

TEST_P(Passes, KeepWhatIsComputed) {
  for (uint64_t seed = 0; seed < cases(); ++seed) {
    expect_same_after(GetParam().second, random_case(seed), seed);
    if (HasFatalFailure()) return;
  }
}

TEST_P(Passes, KeepWhatSymbolicKernelsCompute) {
  for (uint64_t seed = 0; seed < cases(); ++seed) {
    expect_same_after(GetParam().second, random_symbolic_case(seed), seed);
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Passes,
                         testing::Values(std::pair{"remove_unused", &remove_unused},
                                         std::pair{"split_dims", &split_dims},
                                         std::pair{"order_dims", &order_dims},
                                         std::pair{"merge_dims", &merge_dims},
                                         std::pair{"simplify", &simplify}),
                         [](const auto& info) { return std::string(info.param.first); });

}  // namespace
}  // namespace smelt::loops
