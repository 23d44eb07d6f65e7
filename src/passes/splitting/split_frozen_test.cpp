#include "passes/splitting/split_frozen.h"

#include <gtest/gtest.h>

#include "passes/ir_test.h"

namespace smelt {
namespace {

TEST(SplitFrozen, DoesWhatItsCasesSay) {
  expect_ir_cases(__FILE__, "split_frozen_test.ir", [](const std::string& text) {
    Graph graph = Graph::parse(text);
    graph.verify();
    const std::optional<Graph> part = split_frozen(graph, captured_inputs(graph));
    graph.verify();
    if (!part) return "nothing is prepared\n" + graph.str();
    part->verify();
    return part->str() + graph.str();
  });
}

}  // namespace
}  // namespace smelt
