// The values of a graph in another memory layout, in one walk over its nodes: a value may have a
// twin, the same tensor with other strides, and nodes that read it follow it there or have it
// copied back.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "base/arg.h"
#include "graph/graph.h"
#include "passes/rewriting/node_writer.h"
#include "passes/rewriting/replacements.h"

namespace smelt {

// Of an image, a volume, or a row of pixels: a tensor of rank 4, 5 or 3.
TensorType in_channels_last(const TensorType& type);

// For whoever changes it: a result that the caller gets has the strides it has in eager, and a
// value whose type can't be brought back ends the attempt; views of the caller's tensors never
// follow, since they begin at an input, which has no twin.
class LayoutTwins {
 public:
  LayoutTwins(Graph& graph, NodeWriter& writer)
      : graph_(graph), writer_(writer), twins_(graph.values.size(), -1) {}

  // The node with what stands for its arguments; to be called for each node before anything else.
  void apply(Node& node) const { replacements_.apply(node); }
  // Writes the node: on the twins of its arguments if its shape rule takes them, or as it was.
  void add(Node node);
  // The same, as it was.
  void add_plain(Node node);
  // `made` stands for `old`: as it is if the types are equal, else in another layout.
  void put(ValueId old, ValueId made);
  // The value, of rank 4 or 5, or its twin, or a copy of it.
  ValueId channels_last(ValueId value);
  // What was written for the value, of its type.
  ValueId written(ValueId value) const { return replacements_.of(value); }
  // The value in the layout that it is computed in.
  ValueId at_hand(ValueId value) const { return twin(value) >= 0 ? twin(value) : value; }
  // The same, and those that read the value from now on read that.
  void put_channels_last(ValueId value);
  // What a node that comes later will read as it is typed is copied back here.
  void bring_back(Node node);
  // The graph's outputs, as they were typed, and its nodes.
  void finish();

  int copies() const { return copied_; }
  bool good() const { return good_; }  // false: the graph is of no use

 private:
  ValueId twin(ValueId value) const {
    return static_cast<size_t>(value) < twins_.size() ? twins_[value] : -1;
  }
  bool has_twin(const Node& node) const;
  ValueId copy(ValueId value, MemoryFormat format);
  ValueId plain(ValueId value);  // as it was typed before
  bool follow(const Node& node);

  Graph& graph_;
  NodeWriter& writer_;
  Replacements replacements_;
  std::vector<ValueId> twins_;                         // by value: the same in another layout
  std::map<std::pair<ValueId, int>, ValueId> copies_;  // of a value in a format
  int copied_ = 0;
  bool good_ = true;
};

}  // namespace smelt
