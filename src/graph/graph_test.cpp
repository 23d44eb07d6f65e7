#include "graph/graph.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "graph/alias.h"
#include "graph/effects.h"

namespace smelt {
namespace {

constexpr const char* kViews = R"(graph {
  input %0: f32[2, 3] = argument 0
  %1: f32[3, 2]{1, 3} = aten::t(%0) view
  %2: f32[6] = aten::cat([%1, %0])
  %3: f32[2, 3] = aten::view(%2, [2, 3]) view
  %4: f32[3]@3 = aten::select(%3, 0, 1) view
  %5: f32[2, 3] = smelt::write(%0, %3) effect view
  %6: f32[3] = aten::select(%5, 0, 0) view
  %7: f32[2, 3] = aten::neg(%0)
  smelt::set_grad(%0, %7) effect
  return (%6, none)
}
)";

TEST(Graph, BuildsWhatItPrints) {
  Graph graph;
  Size batch = graph.symbols.add(4, "batch");
  TensorType type;
  type.sizes = {batch, 2};
  type.strides = {2, 1};
  ValueId x = graph.add_input(type, Source::argument, 0);
  ValueId w = graph.add_input(type, Source::captured, 0, true);
  ValueId c = graph.add_constant(type, nullptr, "ab");
  const std::optional<TensorType> types[] = {type, std::nullopt};
  NodeId add = graph.add_node(OpName("aten::add.Tensor"), {Ref{x}, Ref{w}, 1}, types);
  graph.add_node(OpName("aten::stack"), {ArgList{Ref{c}, Ref{3}}, batch}, {}, {.random = true});
  graph.outputs = {graph.nodes[add].results[0], -1};
  graph.verify();
  EXPECT_EQ(graph.str(), R"(symbol s0 = 4 "batch"
graph {
  input %0: f32[s0, 2] = argument 0
  input %1: f32[s0, 2] = captured 0 requires_grad
  const %2: f32[s0, 2] = "ab"
  %3: f32[s0, 2], _ = aten::add.Tensor(%0, %1, 1)
  aten::stack([%2, %3], s0) random
  return (%3, none)
}
)");
}

TEST(Graph, CountsAndReplacesUses) {
  Graph graph = Graph::parse(kViews);
  EXPECT_EQ(graph.use_counts(), (std::vector<int32_t>{5, 1, 1, 2, 0, 1, 1, 1}));
  graph.replace_uses(3, 2);
  graph.replace_uses(6, 5);
  EXPECT_EQ(graph.use_counts(), (std::vector<int32_t>{5, 1, 3, 0, 0, 2, 0, 1}));
  EXPECT_EQ(graph.outputs, (std::vector<ValueId>{5, -1}));
}

TEST(Graph, KeepsNodes) {
  Graph graph = Graph::parse(kViews);
  graph.keep_nodes({true, true, true, false, true, true, false, false});
  graph.verify();
  EXPECT_EQ(graph.str(), R"(graph {
  input %0: f32[2, 3] = argument 0
  %1: f32[3, 2]{1, 3} = aten::t(%0) view
  %2: f32[6] = aten::cat([%1, %0])
  %3: f32[2, 3] = aten::view(%2, [2, 3]) view
  %4: f32[2, 3] = smelt::write(%0, %3) effect view
  %5: f32[3] = aten::select(%4, 0, 0) view
  return (%5, none)
}
)");
  EXPECT_THROW(graph.keep_nodes({true, false, true, true, true}), InternalError);
}

TEST(Graph, RenumbersNodesThatWereMoved) {
  Graph graph = Graph::parse(R"(graph {
  input %0: f32[2] = argument 0
  const %1: f32[2] = "unused"
  %2: f32[2] = aten::neg(%0)
  %3: f32[2] = aten::exp(%0)
  return (%2, %3)
}
)");
  std::swap(graph.nodes[0], graph.nodes[1]);
  graph.constants.clear();
  EXPECT_THROW(graph.verify(), InternalError);
  graph.keep_nodes({true, true});
  graph.verify();
  EXPECT_EQ(graph.str(), R"(graph {
  input %0: f32[2] = argument 0
  %1: f32[2] = aten::exp(%0)
  %2: f32[2] = aten::neg(%0)
  return (%2, %1)
}
)");
}

TEST(Alias, FollowsViews) {
  Graph graph = Graph::parse(kViews);
  EXPECT_EQ(view_roots(graph), (std::vector<ValueId>{0, 0, 2, 2, 2, 0, 0, 7}));
  // The output shows the input's memory, and the gradient leaves; the written value is only copied.
  EXPECT_EQ(escaping_roots(graph),
            (std::vector<bool>{true, true, false, false, false, true, true, true}));
}

TEST(OpName, IsInterned) {
  EXPECT_EQ(OpName("aten::add"), OpName(std::string("aten::") + "add"));
  EXPECT_NE(OpName("aten::add"), OpName("aten::sub"));
  EXPECT_NE(OpName("aten::add"), OpName());
  EXPECT_EQ(effects::kWrite.str(), "smelt::write");
}

TEST(Effects, NameMutators) {
  OpName op("aten::cudnn_batch_norm");
  OpName mutator = effects::mutator_of(op);
  EXPECT_EQ(mutator.str(), "aten::cudnn_batch_norm!");
  EXPECT_TRUE(effects::is_mutator(mutator));
  EXPECT_FALSE(effects::is_mutator(op));
  EXPECT_EQ(effects::mutated_op(mutator), op);
}

}  // namespace
}  // namespace smelt
