// Which steps of a program on a GPU are the host's, and which numbers they hand over.
#include "bridge/machine/host_steps.h"

#include <gtest/gtest.h>

#include "compile/compile.h"

namespace smelt {
namespace {

HostSteps parts_of(const char* text) {
  const Graph graph = Graph::parse(text);
  graph.verify();
  return find_host_steps(LinkedProgram(lower(graph), {}));
}

TEST(HostSteps, HandOverTheNumberThatARegisterHasWhenItIsTaken) {
  const HostSteps parts = parts_of(R"(graph {
  input %0: f32[] = argument 0
  input %1: f32[4] cuda:0 = argument 1
  %2: f64[] number = smelt::item(%0)
  %3: f64[] number = smelt::number("pow", 0.5, %2)
  %4: f32[4] cuda:0 = aten::mul.Scalar(%1, %3)
  %5: f64[] number = smelt::number("pow", 0.25, %2)
  %6: f32[4] cuda:0 = aten::mul.Scalar(%4, %5)
  return (%6)
})");
  EXPECT_TRUE(parts.possible);
  EXPECT_TRUE(parts.any);
  EXPECT_EQ(parts.is_host, (std::vector<bool>{true, true, false, true, false}));
  // Two numbers, though the second may lie where the first one did.
  ASSERT_EQ(parts.numbers.size(), 2U);
  EXPECT_EQ(parts.made[1], std::vector<uint32_t>{0});
  EXPECT_EQ(parts.used[2], std::vector<uint32_t>{0});
  EXPECT_EQ(parts.made[3], std::vector<uint32_t>{1});
  EXPECT_EQ(parts.used[4], std::vector<uint32_t>{1});
}

TEST(HostSteps, AreNotPossibleWhereANumberIsReadFromTheDevice) {
  const HostSteps parts = parts_of(R"(graph {
  input %0: f32[] cuda:0 = argument 0
  %1: f64[] number = smelt::item(%0)
  %2: f32[] cuda:0 = aten::mul.Tensor(%0, %1)
  return (%2)
})");
  EXPECT_FALSE(parts.possible);
}

}  // namespace
}  // namespace smelt
