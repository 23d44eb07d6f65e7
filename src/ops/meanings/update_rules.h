// The update rules of ops that have another form too, which stands in another table.
#pragma once

#include "ops/rules/op_meaning.h"

namespace smelt {

extern const UpdateRule kIndexPut;    // index_put(self, indices, values, accumulate)
extern const UpdateRule kScatterPut;  // scatter(self, dim, index, src or value)
extern const UpdateRule kScatterAdd;  // scatter_add(self, dim, index, src)

// (self, dim, index, source, ..) of f16 or bf16, which adds: in single precision, and rounded once.
bool add_in_single_precision(DecomposeQuery& q);

// Is the argument a number, known now or only when the graph runs?
bool is_number_at(const NodeReader& q, size_t i);
// A number as an element of a tensor of that dtype; allows_number: does it hold it?
Expr number_element(ElementQuery& q, size_t i);
Decision allows_number(const NodeReader& q, size_t i);

}  // namespace smelt
