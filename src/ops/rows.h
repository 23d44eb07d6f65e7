// What each aten op is, one row per op: the shape rule, which gives the result types from the
// arguments, with symbolic sizes kept exactly, and the facts that are asked of it elsewhere. Of an
// op without a row a recording knows what PyTorch's kernel for tensors without memory says; without
// one, it is refused.
#pragma once

#include <span>

#include "graph/op_name.h"
#include "ops/rules/op_row.h"

namespace smelt {

// The row of an op, or nullptr.
const OpRow* find_row(OpName op);
std::span<const OpRow> all_rows();

}  // namespace smelt
