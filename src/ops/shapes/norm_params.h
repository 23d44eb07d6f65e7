// What the norms share: their statistics' dtype and which gradients are wanted.
#pragma once

#include <vector>

#include "ops/rules/op_row.h"

namespace smelt {

// The k-th bool of an output_mask argument.
bool is_wanted(const ShapeQuery& q, size_t mask, size_t k);

// The dtype of mean and deviation: the input's, or f32 where a half-precision input meets f32
// parameters. Nothing for other mixtures.
std::optional<DType> statistics_dtype(const ShapeQuery& q, const TensorType& input,
                                      const std::vector<size_t>& params);

}  // namespace smelt
