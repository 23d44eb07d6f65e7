// Graphs through schedule and lowering: which results have places in the arena, and where. Kernels
// are named, not compiled.
#include "compile/arena.h"

#include <gtest/gtest.h>

#include "compile/compile.h"
#include "passes/ir_test.h"

namespace smelt {
namespace {

TEST(PlaceInArena, DoesWhatItsCasesSay) {
  expect_ir_cases(__FILE__, "arena_test.ir", [](const std::string& text) {
    const Graph graph = Graph::parse(text);
    graph.verify();
    Record record;
    const Schedule schedule = make_schedule(graph, {}, record);
    return lower(graph, schedule, std::vector<KernelCode>(schedule.kernels.size())).str();
  });
}

}  // namespace
}  // namespace smelt
