// Integers that ops return beside tensors, where types decide them.
#pragma once

#include <optional>

#include "graph/op_name.h"
#include "ops/rules/shape_query.h"

namespace smelt {

// In their order; nothing for an op that gives others, or none.
std::optional<Sizes> literal_results(OpName op, const ShapeQuery& q);

}  // namespace smelt
