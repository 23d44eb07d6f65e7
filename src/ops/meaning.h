// What an op computes, in one of five forms:
//   element    one element of the result from elements of the arguments: pointwise ops, views,
//              gathers, concatenations, factories. Such a node can be part of any kernel.
//   reduction  elements of the first argument combined over some of its dimensions.
//   scan       elements of the first argument combined with all before them along a dimension.
//   update     elements written one after the other into a copy of an argument, or into zeros.
//   decompose  the node as other nodes, before kernels are made.
// An op without a meaning, or whose meaning refuses, is called through the dispatcher.
#pragma once

#include <span>

#include "base/error.h"
#include "graph/graph.h"
#include "ops/rules/op_meaning.h"

namespace smelt {

// The meaning of an op, or nullptr.
const Meaning* find_meaning(OpName op);
std::span<const Meaning> all_meanings();

// Can a kernel compute this node? (element, reduction or scan; decompositions are done before)
Decision can_lower(const Graph& graph, const Node& node);
// Can one compute it by its update rule?
Decision can_update(const Graph& graph, const Node& node);
// The dtype a pointwise node computes in.
DType compute_dtype_of(const NodeReader& q, const Meaning& meaning);
// The element of result 0 at q.at(), of the result's dtype: asks the op's element rule.
Expr element_of(ElementQuery& q);

}  // namespace smelt
