// Values that stand for others. A pass that walks the nodes in order collects them here and
// rewrites each node as it comes to it, so that many replacements cost one walk.
#pragma once

#include <vector>

#include "graph/graph.h"

namespace smelt {

class Replacements {
 public:
  // From here on `from` is read from `to`, which has been replaced itself if it is to be.
  void put(ValueId from, ValueId to) {
    if (from >= static_cast<ValueId>(to_.size())) to_.resize(from + 1, -1);
    to_[from] = to;
    any_ = true;
  }
  // The value that stands for this one: itself, if nothing was put.
  ValueId of(ValueId value) const {
    if (value < 0 || value >= static_cast<ValueId>(to_.size()) || to_[value] < 0) return value;
    return to_[value];
  }
  bool any() const { return any_; }

  void apply(Node& node) const {
    if (!any_) return;
    for (Arg& arg : node.args) each_ref(arg, [this](Ref& ref) { ref.id = of(ref.id); });
  }
  void apply(std::vector<ValueId>& outputs) const {
    for (ValueId& output : outputs) output = of(output);
  }

 private:
  std::vector<ValueId> to_;  // -1: stands for itself
  bool any_ = false;
};

}  // namespace smelt
