#include "graph/known_sizes.h"

#include <gtest/gtest.h>

namespace smelt {
namespace {

TEST(KnownSizes, StandWhereSymbolsStood) {
  const Graph graph = Graph::parse(R"(symbol s0 = 16
guard (s0%8) == 0
graph {
  input %0: f32[s0, 3] = argument 0
  %1: f32[3, s0]{1, 3} = aten::permute(%0, [1, 0]) view
  %2: f32[2, (s0//2), 3] = aten::reshape(%0, [2, (s0//2), 3])
  return (%1, %2)
}
)");
  const std::vector<int64_t> symbols = {24};
  const Graph known = with_known_sizes(graph, symbols);
  known.verify();
  EXPECT_EQ(known.str(), R"(graph {
  input %0: f32[24, 3] = argument 0
  %1: f32[3, 24]{1, 3} = aten::permute(%0, [1, 0]) view
  %2: f32[2, 12, 3] = aten::reshape(%0, [2, 12, 3])
  return (%1, %2)
}
)");
}

TEST(KnownSizes, AreWhatGuardsSayOfSymbols) {
  Graph graph = Graph::parse(R"(symbol s0 = 16
symbol s1 = 64
symbol s2 = 16
symbol s3 = 16
guard s1 == 64
guard s2 == s0
guard s3 == s2
guard s0 > 8
graph {
  input %0: f32[s0, s1] = argument 0
  input %1: f32[s2, s3] = argument 1
  %2: f32[s2, s1] = aten::mm(%1, %0)
  %3: f32[s2*s1] = aten::reshape(%2, [s3*s1])
  return (%3)
}
)");
  settle_symbols(graph);
  EXPECT_EQ(graph.symbols.guards().size(), 4);
  EXPECT_EQ(graph.type(0).sizes, (Sizes{Size::symbol(0), 64}));
  EXPECT_EQ(graph.type(1).sizes, (Sizes{Size::symbol(0), Size::symbol(0)}));
  EXPECT_EQ(graph.type(3).sizes, (Sizes{Size::symbol(0) * 64}));
  EXPECT_EQ(graph.nodes[1].args[1], Arg(ArgList{Arg(Size::symbol(0) * 64)}));
}

}  // namespace
}  // namespace smelt
