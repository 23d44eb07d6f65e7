#include <gtest/gtest.h>

#include "compile/compile.h"
#include "passes/ir_test.h"

namespace smelt {
namespace {

TEST(Lower, DoesWhatItsCasesSay) {
  expect_ir_cases(__FILE__, "lower_test.ir", [](const std::string& text) {
    const Graph graph = Graph::parse(text);
    graph.verify();
    return lower(graph).str();
  });
}

TEST(Lower, ReleasesInputsThatAreGivenAway) {
  const Graph graph = Graph::parse(R"(graph {
  input %0: f32[2] = argument 0
  input %1: f32[2] = argument 1
  %2: f32[2] = aten::add.Tensor(%0, %1, 1)
  %3: f32[2] = aten::mul.Tensor(%2, %1)
  return (%3, %1)
})");
  const Program kept = lower(graph), given = lower(graph, {.release_inputs = true});
  EXPECT_TRUE(kept.steps[0].release.empty());
  EXPECT_EQ(given.steps[0].release, std::vector<Register>{given.inputs[0].reg});
  EXPECT_EQ(given.steps[1].release, given.steps[0].results);  // not the input that is an output
}

}  // namespace
}  // namespace smelt
