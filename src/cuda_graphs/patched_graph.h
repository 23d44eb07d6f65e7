// A CUDA graph that is launched with its inputs and outputs at other addresses each time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "cuda_graphs/address_words.h"
#include "cuda_graphs/graph_driver.h"
#include "cuda_graphs/number_words.h"

namespace smelt::cuda_graphs {

struct DestroyGraph {
  void operator()(Graph graph) const { graph_driver()->graph_destroy(graph); }
};
struct DestroyExec {
  void operator()(GraphExec exec) const { graph_driver()->exec_destroy(exec); }
};
using OwnedGraph = std::unique_ptr<CUgraph_st, DestroyGraph>;
using OwnedExec = std::unique_ptr<CUgraphExec_st, DestroyExec>;

// The nodes of a graph as plain data. `steps`: by step of the program, the number of nodes that the
// graph had behind it. Forbidden: a node of it can't be given other parameters.
Decision read_nodes(Graph graph, std::span<const size_t> steps, std::vector<CapturedNode>& nodes);

class PatchedGraph {
 public:
  // Of the last capture. `tensors`: how many inputs and outputs there are; `numbers`: likewise.
  PatchedGraph(OwnedGraph graph, std::span<const Place> places,
               std::span<const NumberPlace> number_places, size_t tensors, size_t numbers);
  ~PatchedGraph();

  // `addresses`: of the inputs, then of the outputs.
  void launch(std::span<const uint64_t> addresses, std::span<const Number> numbers, Stream stream);

  size_t nodes() const { return nodes_; }
  size_t patched_nodes() const { return patched_.size(); }

 private:
  struct Patched;
  int32_t patched_at(int32_t node, std::span<const Node> all);
  void mark(std::span<const int32_t> users);
  void set_params(Patched& node);

  OwnedGraph graph_;
  OwnedExec exec_;
  size_t nodes_ = 0;
  std::vector<std::unique_ptr<Patched>> patched_;
  std::unordered_map<int32_t, int32_t> by_node_;    // of patched_
  std::vector<std::vector<int32_t>> users_;         // by tensor: of patched_
  std::vector<std::vector<int32_t>> number_users_;  // by number: likewise
  std::vector<uint64_t> addresses_;                 // that the nodes hold
  std::vector<std::optional<Number>> numbers_;      // likewise
  std::vector<int32_t> dirty_;
};

}  // namespace smelt::cuda_graphs
