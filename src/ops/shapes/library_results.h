// The results of ops of which only a library knows how much they keep for the gradient
// (OpFacts::sized_by_library). Nobody but its own backward looks at that: the last result, which is a
// tensor of no elements here, as it is among PyTorch's tensors without memory, and is what the
// library made it when a program runs.
#pragma once

#include "ops/rules/shape_query.h"

namespace smelt {

Decision library_results(ShapeQuery& q);

}  // namespace smelt
