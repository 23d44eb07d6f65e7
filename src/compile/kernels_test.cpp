// Graphs through decomposition and schedule: the kernels that come out, as text. A change of a
// kernel is a diff to read.
#include "compile/kernels.h"

#include <gtest/gtest.h>

#include "compile/scheduled_test.h"
#include "passes/ir_test.h"

namespace smelt {
namespace {

TEST(Kernels, AreWhatTheirCasesSay) {
  expect_ir_cases(__FILE__, "kernels_test.ir", [](const std::string& text) {
    Graph graph = Graph::parse(text);
    Record record;
    PassOptions passes;
    passes.has_kernels = has_kernels(naming_options());
    run_passes(graph, passes, record);
    Schedule schedule = make_schedule(graph, naming_options(), record);
    schedule.refusals.clear();  // printed as comments, which a case can't expect
    schedule.boundaries.clear();
    std::string result = schedule.str(graph);
    for (const ScheduledKernel& scheduled : schedule.kernels) {
      scheduled.kernel.verify();
      result += scheduled.kernel.str();
    }
    return result;
  });
}

TEST(Kernels, AreOnePerNodeWithoutFusion) {
  const Graph graph = Graph::parse(R"(graph {
  input %0: f32[8] = argument 0
  %1: f32[8] = aten::exp(%0)
  %2: f32[8] = aten::neg(%1)
  %3: f32[] = aten::sum(%2, none)
  return (%3)
})");
  Record record;
  const auto kernels = [&](Fusion fusion, int most) {
    ScheduleOptions options = naming_options();
    options.fusion = fusion;
    options.max_fused_nodes = most;
    return make_schedule(graph, options, record).kernels.size();
  };
  EXPECT_EQ(kernels(Fusion::none, 64), 3);
  EXPECT_EQ(kernels(Fusion::pointwise, 64), 2);
  EXPECT_EQ(kernels(Fusion::full, 64), 1);
  EXPECT_EQ(kernels(Fusion::full, 1), 3);
}

}  // namespace
}  // namespace smelt
