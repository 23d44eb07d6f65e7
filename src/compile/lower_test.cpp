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

}  // namespace
}  // namespace smelt
