#include "compile/peak_memory.h"

#include <gtest/gtest.h>

#include "compile/compile.h"

namespace smelt {
namespace {

std::string peak_of(const char* text) {
  const Graph graph = Graph::parse(text);
  graph.verify();
  Schedule schedule;
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    schedule.order.push_back({.node = static_cast<NodeId>(i)});
  return describe_peak(graph, schedule, lower(graph));
}

TEST(PeakMemory, NamesWhatIsAliveThere) {
  EXPECT_EQ(peak_of(R"(graph {
  input %0: f32[8] = argument 0
  %1: f32[8] = aten::sin(%0)
  %2: f32[4] = aten::slice.Tensor(%1, 0, 0, 4, 1) view
  %3: f32[4] = aten::cos(%2)
  %4: f64[2] = aten::made_smaller(%3)
  return (%4)
})"),
            "48 bytes at aten::cos\n"
            "  32  f32[8] of aten::sin\n"
            "  16  f32[4] of aten::cos\n");
}

TEST(PeakMemory, CountsNoInputs) {
  EXPECT_EQ(peak_of(R"(graph {
  input %0: f32[8] = argument 0
  %1: f32[4] = aten::slice.Tensor(%0, 0, 0, 4, 1) view
  return (%1)
})"),
            "none\n");
}

}  // namespace
}  // namespace smelt
