// Dinic's method: breadth first the distances from the source, then paths that go one further with
// each edge, until no such path is left; again with new distances. The path is kept in a list, not
// on the stack: graphs of programs are thousands of vertices deep.
#include "passes/splitting/max_flow.h"

#include <algorithm>

namespace smelt {

void MaxFlow::add_edge(int from, int to, int64_t capacity) {
  edges_of_[from].push_back(static_cast<int>(edges_.size()));
  edges_.push_back({to, capacity});
  edges_of_[to].push_back(static_cast<int>(edges_.size()));
  edges_.push_back({from, 0});
}

bool MaxFlow::find_levels(int source, int sink) {
  level_.assign(edges_of_.size(), -1);
  level_[source] = 0;
  std::vector<int> reached = {source};
  for (size_t i = 0; i < reached.size() && level_[sink] < 0; ++i)
    for (int edge : edges_of_[reached[i]]) {
      const auto [to, left] = edges_[edge];
      if (left == 0 || level_[to] >= 0) continue;
      level_[to] = level_[reached[i]] + 1;
      reached.push_back(to);
    }
  return level_[sink] >= 0;
}

// One path more; 0 if there is none.
int64_t MaxFlow::augment(int source, int sink) {
  std::vector<int> path;  // edges
  int at = source;
  while (at != sink) {
    if (next_[at] == edges_of_[at].size()) {
      if (path.empty()) return 0;
      at = edges_[path.back() ^ 1].to;
      path.pop_back();
      ++next_[at];
      continue;
    }
    const int edge = edges_of_[at][next_[at]];
    if (edges_[edge].left > 0 && level_[edges_[edge].to] == level_[at] + 1) {
      path.push_back(edge);
      at = edges_[edge].to;
    } else {
      ++next_[at];
    }
  }
  int64_t amount = kUnlimited;
  for (int edge : path) amount = std::min(amount, edges_[edge].left);
  for (int edge : path) {
    if (edges_[edge].left < kUnlimited) edges_[edge].left -= amount;
    if (edges_[edge ^ 1].left < kUnlimited) edges_[edge ^ 1].left += amount;
  }
  return amount;
}

int64_t MaxFlow::run(int source, int sink) {
  int64_t flow = 0;
  while (find_levels(source, sink)) {
    next_.assign(edges_of_.size(), 0);
    while (const int64_t amount = augment(source, sink)) {
      flow += amount;
      if (flow >= kUnlimited) return kUnlimited;
    }
  }
  return flow;
}

std::vector<bool> MaxFlow::sink_side(int sink) const {
  std::vector<bool> reaches(edges_of_.size());
  reaches[sink] = true;
  std::vector<int> reached = {sink};
  for (size_t i = 0; i < reached.size(); ++i)
    for (int edge : edges_of_[reached[i]]) {
      const int from = edges_[edge].to;
      if (edges_[edge ^ 1].left == 0 || reaches[from]) continue;
      reaches[from] = true;
      reached.push_back(from);
    }
  return reaches;
}

}  // namespace smelt
