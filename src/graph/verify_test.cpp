#include <gtest/gtest.h>

#include "base/error.h"
#include "graph/graph.h"

namespace smelt {
namespace {

// An input, a captured tensor, and this line.
Graph graph_with(const std::string& line) {
  return Graph::parse(
      "graph {\n  input %0: f32[2] = argument 0\n  input %1: f32[2] = captured 0\n  " + line +
      "\n  return (%0)\n}\n");
}

std::string complaint(const Graph& graph) {
  try {
    graph.verify();
  } catch (const InternalError& error) {
    std::string message = error.what();
    return message.substr(message.find("': ") + 3);
  }
  return "";
}

TEST(Verify, AcceptsWellFormedEffects) {
  graph_with(
      "%2: f32[2] = smelt::write(%0, %1) effect view\n  %3: f32[2] = smelt::write(%2, %1) effect "
      "view\n"
      "  smelt::set_grad(%3, %2) effect\n  smelt::clear_grad(%1) effect\n"
      "  %4: u8[16] = smelt::save_rng(cpu) random\n  smelt::restore_rng(cpu, %4) effect random")
      .verify();
}

TEST(Verify, RefusesMalformedEffects) {
  const std::string target = "the first argument has to be an input or what a write to one gave";
  EXPECT_EQ(complaint(graph_with(
                "%2: f32[2] = aten::neg(%0)\n  %3: f32[2] = smelt::write(%2, %1) effect view")),
            target);
  EXPECT_EQ(
      complaint(graph_with("%2: f32[2] = aten::alias(%0) view\n  smelt::clear_grad(%2) effect")),
      target);
  EXPECT_EQ(complaint(graph_with("%2: f32[2] = smelt::write(%0) effect view")),
            "it takes 2 arguments");
  EXPECT_EQ(complaint(graph_with("smelt::write(%0, %1) effect view")), "it gives 1 results");
  EXPECT_EQ(complaint(graph_with("smelt::set_grad(%0, %1)")), "its traits are not those of its op");
  EXPECT_EQ(complaint(graph_with("smelt::set_grad(%0, none) effect")),
            "argument 1 has to be a tensor");
  EXPECT_EQ(complaint(graph_with("smelt::restore_rng(3, %0) effect random")),
            "the first argument has to be a device or a generator");
  EXPECT_EQ(complaint(graph_with("%2: f32[2] = aten::view(3) view")),
            "a view shows the memory of a tensor argument, and there is none");
  EXPECT_EQ(complaint(graph_with("%2: f32[2] = aten::norm!(%0)")),
            "a mutator begins with the list of what it changes");
  EXPECT_EQ(complaint(graph_with("%2: f32[2] = aten::norm!([7], %0)")),
            "a mutator's list holds the places of its arguments");
}

TEST(Verify, RefusesBrokenLinks) {
  const Graph good = graph_with("%2: f32[2] = aten::neg(%0)");
  Graph graph = good;
  graph.nodes[0].args[0] = Ref{2};
  EXPECT_EQ(complaint(graph), "%2 is used before it is defined");
  graph = good;
  graph.nodes[0].args[0] = Ref{9};
  EXPECT_EQ(complaint(graph), "%9 does not exist");
  graph = good;
  graph.nodes[0].results[0] = 9;
  EXPECT_EQ(complaint(graph), "%9 does not exist");
  graph = good;
  graph.nodes[0].results[0] = 1;
  EXPECT_EQ(complaint(graph), "%1 is defined twice");
  graph = good;
  graph.values[2].result = 1;
  EXPECT_EQ(complaint(graph), "%2 does not lead back to what defines it");
  graph = good;
  graph.nodes.clear();
  EXPECT_EQ(complaint(graph), "%2 is defined by nothing");
  graph = good;
  graph.outputs = {5};
  EXPECT_EQ(complaint(graph), "%5 does not exist");
  graph = good;
  graph.nodes[0].op = OpName();
  EXPECT_EQ(complaint(graph), "it has no op");
}

TEST(Verify, RefusesHalfTypes) {
  const Graph good = graph_with("%2: f32[2] = aten::neg(%0)");
  Graph graph = good;
  graph.values[2].type.strides.clear();
  EXPECT_EQ(complaint(graph), "%2 has not as many strides as sizes");
  graph = good;
  graph.values[2].type.sizes[0] = -3;
  EXPECT_EQ(complaint(graph), "%2 has a negative size");
  graph = good;
  graph.values[2].type.sizes[0] = Size::symbol(0);
  EXPECT_EQ(complaint(graph), "s0 uses a symbol that is not declared");
  graph = good;
  graph.inputs[1].source = Source::grad;
  graph.inputs[1].index = 2;
  EXPECT_EQ(complaint(graph), "it is the gradient of an input that does not exist");
}

TEST(Verify, NamesTheLine) {
  Graph graph = graph_with("%2: f32[2] = aten::neg(%0)");
  graph.nodes[0].args[0] = Ref{9};
  EXPECT_THROW(
      {
        try {
          graph.verify();
        } catch (const InternalError& error) {
          EXPECT_STREQ(error.what(),
                       "the graph is broken at '%2: f32[2] = aten::neg(%9)': %9 does not exist");
          throw;
        }
      },
      InternalError);
}

}  // namespace
}  // namespace smelt
