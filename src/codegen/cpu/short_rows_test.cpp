#include "codegen/cpu/short_rows.h"

#include <gtest/gtest.h>

#include "codegen/cpu/against_interpreter_test.h"
#include "codegen/cpu/plan.h"

namespace smelt::cpu {
namespace {

using loops::Kernel;

// Sums over the channels of a group at all pixels, channels last, and what is scaled by them.
std::string group_kernel(int64_t groups, int64_t pixels, int64_t row) {
  const auto text = [](int64_t n) { return std::to_string(n); };
  const int64_t channels = groups * row, elements = channels * pixels;
  const std::string at = text(row) + "*i0 + " + text(channels) + "*i1 + i2";
  return "kernel \"group\" outer [" + text(groups) + "] inner [" + text(pixels) + ", " + text(row) +
         "]\nb0: f32[" + text(elements) + "] input\nb1: f32[" + text(channels) +
         "] input\nb2: f32[" + text(pixels) + "] input\nb3: f32[" + text(elements) +
         "] output\ninner stage\n  v0: f32 = load b0[" + at +
         "]\n  v1: f32 = reduce sum v0\ninner stage\n  v2: f32 = load b0[" + at +
         "]\n  v3: f32 = mul v1, v2\n  v4: f32 = load b1[" + text(row) +
         "*i0 + i2]\n  v5: f32 = mul v3, v4\n  v6: f32 = load b2[i1]\n  v7: f32 = add v5, v6\n"
         "  store b3[" +
         at + "] = v7\nend\n";
}

Kernel group(int64_t groups, int64_t pixels, int64_t row) {
  Kernel kernel = Kernel::parse(group_kernel(groups, pixels, row));
  kernel.verify();
  return kernel;
}

TEST(ShortRows, AreJoined) {
  const std::optional<Kernel> joined = join_short_rows(group(3, 10, 8), 16);
  ASSERT_TRUE(joined);
  joined->verify();
  EXPECT_EQ(joined->str(), R"(kernel "group" outer [3] inner [80]
b0: f32[240] input
b1: f32[24] input
b2: f32[10] input
b3: f32[240] output
inner stage
  v0: f32 = load b0[8*i0 + 24*(i1 // 8) + (i1 % 8)]
  v1: f32 = reduce sum v0
inner stage
  v2: f32 = load b0[8*i0 + 24*(i1 // 8) + (i1 % 8)]
  v3: f32 = mul v1, v2
  v4: f32 = load b1[8*i0 + (i1 % 8)]
  v5: f32 = mul v3, v4
  v6: f32 = load b2[(i1 // 8)]
  v7: f32 = add v5, v6
  store b3[8*i0 + 24*(i1 // 8) + (i1 % 8)] = v7
end
)");
}

TEST(ShortRows, ThatDoNotFillAVectorStay) {
  EXPECT_FALSE(join_short_rows(group(3, 10, 16), 16));
  EXPECT_FALSE(join_short_rows(group(3, 10, 6), 16));
  EXPECT_FALSE(join_short_rows(group(3, 1, 8), 16));
  EXPECT_FALSE(join_short_rows(group(3, 10, 8), 8));
}

TEST(ShortRows, WhoseOrderMattersStay) {
  EXPECT_FALSE(join_short_rows(Kernel::parse(R"(kernel "running" outer [4] inner [3, 4]
b0: f32[48] input
b1: f32[48] output
inner stage
  v0: f32 = load b0[12*i0 + 4*i1 + i2]
  v1: f32 = scan sum v0
inner stage
  v2: f32 = load b0[12*i0 + 4*i1 + i2]
  store b1[12*i0 + 4*i1 + i2] = v2
end
)"),
                               16));
}

TEST(ShortRows, AreJoinedWhereThatCostsLess) {
  const HostTarget& host = host_target();
  if (host.vector_bits < 256) GTEST_SKIP() << "no vectors of eight lanes";
  EXPECT_EQ(kernel_to_plan(group(8, 1024, 4), {}, host).inner, Sizes{4096});
  EXPECT_EQ(kernel_to_plan(group(8, 1024, 32), {}, host).inner.size(), 2u);
}

// With remainders, of all widths, and where the loops are cut into slices.
TEST(ShortRows, GiveWhatTheyGaveBefore) {
  for (const int64_t row : {2, 4, 8})
    for (const int64_t pixels : {3, 33, 200})
      EXPECT_EQ(compare_all(group(3, pixels, row)), "") << row << ", " << pixels;
}

// Outer dimensions, of 2 and 8 bytes.
TEST(ShortRows, OfPointwiseKernels) {
  for (const std::string dtype : {"f64", "i16", "f32"}) {
    const Kernel kernel = Kernel::parse(
        "kernel \"scaled\" outer [5, 9, 4] inner []\nb0: " + dtype + "[360] input\nb1: " + dtype +
        "[4] input\nb2: " + dtype + "[45] input\nb3: " + dtype +
        "[360] output\nouter stage\n  v0: " + dtype +
        " = load b0[72*i0 + 8*i1 + i2]\n  v1: " + dtype + " = load b1[i2]\n  v2: " + dtype +
        " = mul v0, v1\n  v3: " + dtype + " = load b2[9*i0 + i1]\n  v4: " + dtype +
        " = add v2, v3\n  store b3[72*i0 + 8*i1 + i2] = v4\nend\n");
    kernel.verify();
    EXPECT_EQ(compare_all(kernel), "") << dtype;
  }
}

}  // namespace
}  // namespace smelt::cpu
