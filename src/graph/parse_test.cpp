#include <gtest/gtest.h>

#include "base/error.h"
#include "graph/graph.h"

namespace smelt {
namespace {

std::string error_of(const std::string& text) {
  try {
    Graph::parse(text);
  } catch (const Error& error) {
    std::string message = error.what();
    return message.substr(message.find(": ") + 2);
  }
  return "no error";
}

// The error of a graph with an input %0 and this as its third line.
std::string error_of_line(const std::string& line) {
  return error_of("graph {\n  input %0: f32[2] = argument 0\n  " + line + "\n  return (%0)\n}\n");
}

TEST(Parse, IsTheInverseOfPrint) {
  const std::string text = R"(symbol s0 = 4 "batch"
symbol s1 = 7
guard s0 <= 64  # model.py:12
guard s0*s1 != (s1//2)
graph {
  input %0: f32[s0, 10] = argument 0
  input %1: f32[5, 10] cuda:0 = captured 0 requires_grad
  input %2: f32[5, 10] = grad 1
  const %3: i64[2] = "9f3ac1"
  %4: f32[10, 5]{1, 10} cuda:0 = aten::t(%1) view
  %6: c64[s0, 5] conj, _, %5: i64[]@3 = aten::something.out(%4, none, [1, 2*s0], true, "a, b ", 1.0, [], f16) random
  %7: f32[4] = aten::cudnn_batch_norm!([0], %5) grad
  smelt::set_grad(%1, %6) effect
  _ = aten::nothing()
  return (%6, none, %0)
}
)";
  Graph graph = Graph::parse(text);
  graph.verify();
  EXPECT_EQ(graph.str(), text);
  EXPECT_EQ(graph.symbols.symbols()[0].name, "batch");
  EXPECT_EQ(graph.symbols.guards()[0].where, "model.py:12");
  EXPECT_EQ(graph.values[5].node, 1);
  EXPECT_EQ(graph.values[5].result, 2);
}

TEST(Parse, ReadsTheSmallestGraph) {
  EXPECT_EQ(Graph::parse("graph {\nreturn ()\n}").str(), "graph {\n  return ()\n}\n");
}

TEST(Parse, SkipsCommentsAndEmptyLines) {
  Graph graph = Graph::parse(R"(
# A comment.
graph {   # here

  input %0: f32[2] = argument 0  # and here
  # and here
  return (%0)
}

# The end.)");
  EXPECT_EQ(graph.str(), "graph {\n  input %0: f32[2] = argument 0\n  return (%0)\n}\n");
}

TEST(Parse, SaysWhatIsWrongWhere) {
  EXPECT_EQ(error_of(""),
            "line 1, column 1: expected 'symbol', 'guard' or 'graph {', found the end of the text");
  EXPECT_EQ(error_of("symbol s1 = 4\n"),
            "line 1, column 8: expected s0, symbols are numbered in order");
  EXPECT_EQ(error_of("symbol s0 = 1\n"), "line 1, column 13: the hint of a symbol is at least 2");
  EXPECT_EQ(error_of("guard s0 < 4\n"),
            "line 1, column 7: s0 is not declared with a line 'symbol'");
  EXPECT_EQ(error_of("guard 3 = 4\n"),
            "line 1, column 9: expected one of == != < <= > >=, found '= 4'");
  EXPECT_EQ(error_of("graph {\n  return (%0)\n}"),
            "line 2, column 11: %0 is not defined before this line");
  EXPECT_EQ(error_of("graph {\n  return ()\n} x"),
            "line 3, column 3: expected the end of the line, found 'x'");
  EXPECT_EQ(error_of("graph {\n"),
            "line 2, column 1: expected a node, as '%2: f32[3] = op(%1)', or 'return', "
            "found the end of the text");
}

TEST(Parse, SaysWhatIsWrongWithANode) {
  EXPECT_EQ(error_of_line("%1: f32[2] = aten::neg(%2)"),
            "line 3, column 26: %2 is not defined before this line");
  EXPECT_EQ(error_of_line("%1: f32[2] = aten::neg(%1)"),
            "line 3, column 26: a node cannot take its own result");
  EXPECT_EQ(error_of_line("%0: f32[2] = aten::neg(%0)"), "line 3, column 3: %0 is defined twice");
  EXPECT_EQ(error_of_line("%2: f32[2] = aten::neg(%0)"),
            "line 3, column 3: %2 leaves a gap: there are 2 values, numbered from %0");
  EXPECT_EQ(error_of_line("%1: f32[2 = aten::neg(%0)"),
            "line 3, column 13: expected ']', found '= aten::neg(%0)'");
  EXPECT_EQ(error_of_line("%1: f33[2] = aten::neg(%0)"),
            "line 3, column 7: expected an element type, as f32, found 'f33'");
  EXPECT_EQ(error_of_line("%1: f32[2]{1, 2} = aten::neg(%0)"),
            "line 3, column 7: expected as many strides as sizes");
  EXPECT_EQ(error_of_line("%1: f32[s0] = aten::neg(%0)"),
            "line 3, column 7: s0 is not declared with a line 'symbol'");
  EXPECT_EQ(error_of_line("aten::neg(%0, s3)"),
            "line 3, column 17: s3 is not declared with a line 'symbol'");
  EXPECT_EQ(error_of_line("aten::neg(%0"),
            "line 3, column 15: expected ')', found the end of the line");
  EXPECT_EQ(error_of_line("aten::neg(%0) pure"),
            "line 3, column 17: expected one of effect, random, view, grad, loose, found 'pure'");
  EXPECT_EQ(error_of_line("input %1: f32[2] = result 1"),
            "line 3, column 22: expected one of argument, captured, grad, found 'result 1'");
  EXPECT_EQ(error_of_line("const %1: f32[2] = 3"),
            "line 3, column 22: expected the digest of the constant, a string, found '3'");
}

}  // namespace
}  // namespace smelt
