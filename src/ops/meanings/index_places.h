// Where self[indices] looks: what reading and writing by index tensors share.
#pragma once

#include "ops/rules/op_meaning.h"

namespace smelt {

// i64 or i32.
bool is_index(const TensorType& type);

// (self, [indices], ..): the sizes of self[indices].
Sizes indexed_sizes(const NodeReader& q);
// The place in self of the element of self[indices] at q.at(); `sizes` are self[indices]'s.
Indices indexed_place(ElementQuery& q, const Sizes& sizes);
// Are there indices, none of them a mask, into something?
Decision allows_indices(const NodeReader& q);

}  // namespace smelt
