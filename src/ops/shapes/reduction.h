// Which dimensions a reduction takes away, as its arguments say.
#pragma once

#include "ops/rules/op_row.h"

namespace smelt {

// The sizes of `self` reduced over the dimensions of argument `dims` (one, a list, or none);
// nothing where torch refuses. An empty list means all dimensions, unless `empty_is_none`.
std::optional<Sizes> reduced_sizes(const ShapeQuery& q, const TensorType& self, size_t dims,
                                   bool keepdim, bool empty_is_none = false);

// Has every dimension that is reduced at least one element? Minima and the like need it.
bool reduces_something(const ShapeQuery& q, const TensorType& self, size_t dims);

}  // namespace smelt
