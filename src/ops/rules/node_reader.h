// Reads a node's arguments, for rules about what it computes.
#pragma once

#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace smelt {

// Reads a node's arguments: shared by the queries below.
class NodeReader {
 public:
  NodeReader(const Graph& graph, const Node& node) : graph_(graph), node_(node) {}

  const Graph& graph() const { return graph_; }
  const Node& node() const { return node_; }
  size_t size() const { return node_.args.size(); }
  const Arg& arg(size_t i) const { return node_.args[i]; }
  bool is_none(size_t i) const { return i >= node_.args.size() || node_.args[i].is_none(); }
  bool is_tensor(size_t i) const { return i < node_.args.size() && node_.args[i].is<Ref>(); }
  ValueId value(size_t i) const { return node_.args[i].get<Ref>().id; }
  const TensorType& type(size_t i) const { return graph_.type(value(i)); }
  std::vector<ValueId> values(size_t i) const;  // of a tensor list
  const TensorType& result(size_t i = 0) const { return graph_.type(node_.results[i]); }
  // Literals. Whether they are there and known is part of can_lower; a check fails otherwise.
  int64_t integer(size_t i) const;
  int64_t integer(size_t i, int64_t if_none) const;
  std::vector<int64_t> integers(size_t i) const;  // an int stands for a list of one; none is empty
  Size size_at(size_t i) const;
  Sizes sizes(size_t i) const;
  bool boolean(size_t i) const;
  bool boolean(size_t i, bool if_none) const;
  double number(size_t i) const;  // int, float or bool
  double number(size_t i, double if_none) const;
  std::string_view text(size_t i) const;

 private:
  const Graph& graph_;
  const Node& node_;
};

}  // namespace smelt
