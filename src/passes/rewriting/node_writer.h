// Nodes written in the place of others, in one walk over a graph: each node is kept or something
// else is written for it. Types come from the shape rules of the ops.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace smelt {

class NodeWriter {
 public:
  explicit NodeWriter(Graph& graph) : graph_(graph) {}

  // A node of a pure op with one result; -1 if the shape rule refuses, and the node is not written.
  ValueId call(std::string_view op, std::vector<Arg> args, bool is_view = false);
  // The same where the type is known.
  ValueId call(std::string_view op, std::vector<Arg> args, TensorType type);
  void keep(Node node);

  // What the shape rule gives, nothing for a result that is undefined; empty if it refuses.
  std::vector<std::optional<TensorType>> types_of(OpName op, std::vector<Arg> args) const;
  // The node that made a value that was written or kept here; nullptr for any other.
  const Node* maker(ValueId value) const;
  // Leaves the node out after all.
  void drop(const Node* node);

  // Forgets what was written since there were so many nodes and values.
  struct Mark {
    size_t nodes, values;
  };
  Mark mark() const { return {nodes_.size(), graph_.values.size()}; }
  void forget_since(Mark mark);

  // The graph's nodes are those written and kept.
  void finish();

 private:
  Graph& graph_;
  std::vector<Node> nodes_;
  std::vector<bool> dropped_;
  std::vector<int32_t> maker_;  // by value, into nodes_; -1: none
};

}  // namespace smelt
