// What the callers of a graph can tell apart: two tensors or one, their memory or another's. A pass
// that makes one value out of two has to ask here first (docs/design/passes.md, "The escape rule").
#pragma once

#include <vector>

#include "graph/graph.h"

namespace smelt {

struct Ownership {
  explicit Ownership(const Graph& graph);

  // All by value id.
  std::vector<ValueId> roots;  // the value whose memory it shows, as view_roots
  // The tensor itself goes to the caller, as an output or as a .grad: it must be an object of its
  // own.
  std::vector<bool> handed_out;
  // Its memory goes to the caller, by itself or through a view: it must be memory of its own.
  std::vector<bool> escapes;
  // Its memory is changed in place by a mutator (graph/effects.h): nobody else may read it.
  std::vector<bool> mutated;
};

// By node: is it a view on the way from a tensor of the caller (an input, also one written to) to
// an output? The caller gets an alias of his own tensor, and autograd has to know it as one, made
// by the same views as in eager: of t(detach(x)) nothing may require a gradient. Passes leave such
// views alone.
std::vector<bool> visible_views(const Graph& graph);

}  // namespace smelt
