// Elements of nodes, written into a kernel by asking the nodes they are computed from.
#pragma once

#include <functional>

#include "ops/meaning.h"
#include "schedule/roles.h"

namespace smelt {

// Gives an element of a value that is not looked through: an input, the result of a call, or of a
// node in a kernel.
using ReadElement = std::function<Expr(ValueId value, const Indices& at)>;

// The element at `at` of a value, looking through views and inlined nodes.
Expr pull_value(const Graph& graph, const Roles& roles, ValueId value, const Indices& at,
                loops::Builder& builder, const ReadElement& read);
// The element at `at` of an element node's result, of the result's dtype.
Expr pull_node(const Graph& graph, const Roles& roles, NodeId node, const Indices& at,
               loops::Builder& builder, const ReadElement& read);

// What an update node writes at a point.
UpdatedElement pull_update(const Graph& graph, const Roles& roles, NodeId node, const Indices& at,
                           loops::Builder& builder, const ReadElement& read);

// A place where a node of a kernel reads a value.
struct Read {
  ValueId value = -1;
  Indices at;
};
// What a node reads to compute its element at `at` (a reduction or scan: the element it combines
// there; an update: what it writes at that point) in a kernel of these dimensions.
std::vector<Read> reads_of(const Graph& graph, const Roles& roles, NodeId node, const Indices& at,
                           const Sizes& outer, const Sizes& inner);

}  // namespace smelt
