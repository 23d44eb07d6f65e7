// Where the elements of a view stand, for the views and for the writes into them.
#pragma once

#include <optional>

#include "ops/rules/op_meaning.h"

namespace smelt {

// The first index of a slice of a dimension, by the same questions its type was found by.
Size slice_start(const Graph& graph, const Size& size, std::optional<Size> start,
                 std::optional<Size> end, const Size& step);
// An index counted from the front.
Size select_index(const Graph& graph, const Size& size, const Size& index);

Indices inserted(Indices at, int dim, Index index);
Indices erased(Indices at, int dim);
std::optional<Size> optional_size(const NodeReader& q, size_t i);

}  // namespace smelt
