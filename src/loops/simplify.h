// A kernel made simpler without changing what it computes. Only the order in which a sum, product
// or other reduction combines the inner points may become another one, and never in an ordered
// kernel.
#pragma once

#include "loops/kernel.h"

namespace smelt::loops {

// In this order, each also by itself:

// Instructions nobody reads, and stages left empty; buffers keep their numbers. What may report
// failure stays.
void remove_unused(Kernel& kernel);
// A dim that stands in i // c and i % c becomes two, so that indices are affine.
void split_dims(Kernel& kernel);
// Dims by falling stride of the stores (then loads), within outer and within inner; dims of extent
// 1 are dropped.
void order_dims(Kernel& kernel);
// Neighbours that every index walks as one become one.
void merge_dims(Kernel& kernel);

void simplify(Kernel& kernel);

// Gives the kernel other dimensions: `dims` has for each of the old ones an index over the new.
void replace_dims(Kernel& kernel, Sizes outer, Sizes inner, std::span<const Index> dims);

}  // namespace smelt::loops
