// What each pass makes of a kernel, as text.
#include "loops/simplify.h"

#include <gtest/gtest.h>

namespace smelt::loops {
namespace {

std::string after(void (*pass)(Kernel&), const std::string& text) {
  Kernel kernel = Kernel::parse(text);
  kernel.verify();
  pass(kernel);
  kernel.verify();
  return kernel.str();
}

// A copy of b0 to b1 over these dimensions.
std::string copy(const std::string& head, const std::string& from, const std::string& to) {
  return "kernel \"k\" " + head + "\nb0: f32[4096] input\nb1: f32[4096] output\nouter stage\n" +
         "  v0: f32 = load b0[" + from + "]\n  store b1[" + to + "] = v0\nend\n";
}

TEST(SplitDims, MakesReshapesAffine) {
  EXPECT_EQ(after(split_dims, copy("outer [24] inner []", "(i0 // 6) + 4*(i0 % 6)", "i0")),
            copy("outer [4, 6] inner []", "i0 + 4*i1", "6*i0 + i1"));
  EXPECT_EQ(after(split_dims,
                  copy("outer [24] inner []", "(i0 // 12) + 2*((i0 // 3) % 4) + 8*(i0 % 3)", "i0")),
            copy("outer [2, 4, 3] inner []", "i0 + 2*i1 + 8*i2", "12*i0 + 3*i1 + i2"));
  EXPECT_EQ(after(split_dims, copy("outer [8, 3] inner []", "((3*i0 + i1) // 6)", "3*i0 + i1")),
            copy("outer [4, 2, 3] inner []", "i0", "6*i0 + 3*i1 + i2"));
}

TEST(SplitDims, LeavesWhatDoesNotDivide) {
  std::string text = copy("outer [25] inner []", "(i0 // 6)", "i0");
  EXPECT_EQ(after(split_dims, text), text);
  text = copy("outer [24] inner []", "((1 + i0) // 6)", "i0");
  EXPECT_EQ(after(split_dims, text), text);
}

TEST(SplitDims, SplitsSymbolicExtentsThatPlainlyDivide) {
  EXPECT_EQ(after(split_dims, copy("outer [4*s0] inner []", "(i0 // 4) + s0*(i0 % 4)", "i0")),
            copy("outer [s0, 4] inner []", "i0 + s0*i1", "4*i0 + i1"));
  EXPECT_EQ(after(split_dims, copy("outer [4*s0] inner []", "(i0 // s0)", "i0")),
            copy("outer [4, s0] inner []", "i0", "s0*i0 + i1"));
}

TEST(OrderDims, PutsTheSmallestStrideInside) {
  EXPECT_EQ(after(order_dims, copy("outer [3, 1, 5] inner []", "5*i0 + i2", "i0 + 3*i2")),
            copy("outer [5, 3] inner []", "i0 + 5*i1", "3*i0 + i1"));
  EXPECT_EQ(after(order_dims, copy("outer [s0, 5] inner []", "i0", "i0 + s0*i1")),
            copy("outer [5, s0] inner []", "i1", "s0*i0 + i1"));
  std::string ordered = copy("outer [3, 5] inner [] ordered", "5*i0 + i1", "i0 + 3*i1");
  EXPECT_EQ(after(order_dims, ordered), ordered);
}

std::string reduction(const std::string& name, const std::string& dtype, const std::string& head,
                      const std::string& index) {
  return "kernel \"k\" " + head + "\nb0: f32[60] input\nb1: " + dtype +
         "[4] output\ninner stage\n  v0: f32 = load b0[" + index + "]\n  v1: " + dtype +
         " = reduce " + name + " v0\nouter stage\n  store b1[i0] = v1\nend\n";
}

TEST(OrderDims, OrdersInnerDimsOnlyWhereNobodySees) {
  EXPECT_EQ(after(simplify, reduction("sum", "f32", "outer [4] inner [3, 5]", "15*i0 + i1 + 3*i2")),
            reduction("sum", "f32", "outer [4] inner [15]", "15*i0 + i1"));
  std::string text = reduction("argmax", "i64", "outer [4] inner [3, 5]", "15*i0 + i1 + 3*i2");
  EXPECT_EQ(after(simplify, text), text);
  EXPECT_EQ(
      after(simplify, reduction("argmax", "i64", "outer [4] inner [3, 5]", "15*i0 + 5*i1 + i2")),
      reduction("argmax", "i64", "outer [4] inner [15]", "15*i0 + i1"));
}

TEST(MergeDims, JoinsNeighboursThatAllWalkAsOne) {
  EXPECT_EQ(after(merge_dims,
                  copy("outer [2, 3, 5] inner []", "15*i0 + 5*i1 + i2", "7 + 15*i0 + 5*i1 + i2")),
            copy("outer [30] inner []", "i0", "7 + i0"));
  EXPECT_EQ(after(merge_dims, copy("outer [2, 3, 5] inner []", "5*i1 + i2", "15*i0 + 5*i1 + i2")),
            copy("outer [2, 15] inner []", "i1", "15*i0 + i1"));
  EXPECT_EQ(after(merge_dims, copy("outer [s0, s1] inner []", "s1*i0 + i1", "s1*i0 + i1")),
            copy("outer [s0*s1] inner []", "i0", "i0"));
  EXPECT_EQ(after(merge_dims, copy("outer [2, 3] inner []", "((3*i0 + i1) // 4)", "3*i0 + i1")),
            copy("outer [6] inner []", "(i0 // 4)", "i0"));
}

TEST(RemoveUnused, DropsWhatNobodyReads) {
  EXPECT_EQ(after(remove_unused,
                  "kernel \"k\" outer [4] inner [3]\nb0: f32[12] input\nb1: i64[4] output\n"
                  "b2: f32[3] scratch\n"
                  "inner stage\n  v0: f32 = load b0[3*i0 + i1]\n  v1: f32 = reduce sum v0\n"
                  "  store b2[i1] = v0\n"
                  "outer stage\n  v3: f32 = neg v1\n  v4: i64 = index i0\n"
                  "  v5: i64 = check v4 below 3\n  v6: i64 = add v4, v4\n  store b1[v4] = v4\n"
                  "end\n"),
            "kernel \"k\" outer [4] inner []\nb0: f32[12] input\nb1: i64[4] output\n"
            "b2: f32[3] scratch\n"
            "outer stage\n  v0: i64 = index i0\n  v1: i64 = check v0 below 3\n"
            "  store b1[v0] = v0\nend\n");
}

TEST(Simplify, MakesATransposedReshapeTwoLoops) {
  // x.view(4, 6).t().contiguous().view(24) of a contiguous x.
  EXPECT_EQ(after(simplify, copy("outer [24, 1] inner []", "6*(i0 % 4) + (i0 // 4)", "i0")),
            copy("outer [6, 4] inner []", "i0 + 6*i1", "4*i0 + i1"));
}

}  // namespace
}  // namespace smelt::loops
