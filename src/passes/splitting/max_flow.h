// The cheapest cut between two vertices of a network, by the largest flow between them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace smelt {

class MaxFlow {
 public:
  // An edge of this capacity is never cut.
  static constexpr int64_t kUnlimited = int64_t{1} << 60;

  explicit MaxFlow(int vertices) : edges_of_(vertices) {}

  void add_edge(int from, int to, int64_t capacity);
  // What a cheapest cut costs; kUnlimited if there is no cut. Once.
  int64_t run(int source, int sink);
  // Afterwards, by vertex: is it on the sink's side? Of the cheapest cuts the one nearest to the
  // sink.
  std::vector<bool> sink_side(int sink) const;

 private:
  struct Edge {
    int to;
    int64_t left;  // capacity that is not used
  };
  bool find_levels(int source, int sink);
  int64_t augment(int source, int sink);

  std::vector<Edge> edges_;  // i ^ 1 is the way back of i
  std::vector<std::vector<int>> edges_of_;
  std::vector<int> level_;    // distance from the source by edges with capacity left, -1: none
  std::vector<size_t> next_;  // by vertex: the edge to try next
};

}  // namespace smelt
