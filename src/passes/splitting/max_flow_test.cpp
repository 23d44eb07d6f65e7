#include "passes/splitting/max_flow.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace smelt {
namespace {

struct Edge {
  int from, to;
  int64_t capacity;
};

int64_t cost(const std::vector<Edge>& edges, const std::vector<bool>& sink_side) {
  int64_t sum = 0;
  for (const Edge& edge : edges)
    if (!sink_side[edge.from] && sink_side[edge.to]) sum += edge.capacity;
  return sum;
}

// Every way to part the vertices.
int64_t cheapest(int vertices, const std::vector<Edge>& edges) {
  int64_t best = MaxFlow::kUnlimited;
  for (int chosen = 0; chosen < 1 << (vertices - 2); ++chosen) {
    std::vector<bool> sink_side(vertices);
    sink_side[1] = true;
    for (int v = 2; v < vertices; ++v) sink_side[v] = chosen >> (v - 2) & 1;
    best = std::min(best, cost(edges, sink_side));
  }
  return best;
}

TEST(MaxFlow, FindsACheapestCut) {
  std::mt19937 random(1);
  const int vertices = 9;
  for (int round = 0; round < 300; ++round) {
    std::vector<Edge> edges;
    for (int i = 0; i < 22; ++i) {
      const int from = static_cast<int>(random() % vertices);
      const int to = static_cast<int>(random() % vertices);
      const int64_t capacity = random() % 6 == 0 ? MaxFlow::kUnlimited / 64 : random() % 20;
      if (from != to) edges.push_back({from, to, capacity});
    }
    MaxFlow flow(vertices);
    for (const Edge& edge : edges) flow.add_edge(edge.from, edge.to, edge.capacity);
    const int64_t found = flow.run(0, 1);
    EXPECT_EQ(found, cheapest(vertices, edges));
    EXPECT_EQ(found, cost(edges, flow.sink_side(1)));
  }
}

TEST(MaxFlow, SaysThatThereIsNoCut) {
  MaxFlow flow(3);
  flow.add_edge(0, 2, MaxFlow::kUnlimited);
  flow.add_edge(2, 1, MaxFlow::kUnlimited);
  flow.add_edge(0, 1, 3);
  EXPECT_EQ(flow.run(0, 1), MaxFlow::kUnlimited);
}

TEST(MaxFlow, CutsNearTheSink) {
  MaxFlow flow(4);
  flow.add_edge(0, 2, 5);
  flow.add_edge(2, 3, 5);
  flow.add_edge(3, 1, 5);
  EXPECT_EQ(flow.run(0, 1), 5);
  EXPECT_EQ(flow.sink_side(1), (std::vector<bool>{false, true, false, false}));
}

TEST(MaxFlow, IsDeepWithoutRecursion) {
  const int vertices = 200'000;
  MaxFlow flow(vertices);
  for (int v = 2; v + 1 < vertices; ++v) flow.add_edge(v, v + 1, 7);
  flow.add_edge(0, 2, 9);
  flow.add_edge(vertices - 1, 1, 8);
  EXPECT_EQ(flow.run(0, 1), 7);
}

}  // namespace
}  // namespace smelt
