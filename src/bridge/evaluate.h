// Constant folding's arithmetic: a node run on constants with PyTorch's kernels.
#pragma once

#include <ATen/core/ivalue.h>

#include "passes/passes.h"

namespace smelt {

// Nothing if the op fails on them: it will fail when the program runs, as in eager.
std::optional<std::vector<FoldedConstant>> evaluate_node(const Graph& graph, const Node& node,
                                                         const std::vector<c10::IValue>& opaque);

}  // namespace smelt
