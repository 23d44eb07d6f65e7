// Do two tensors show common memory?
#pragma once

#include <ATen/core/Tensor.h>

#include "base/symbols.h"
#include "base/type.h"

namespace smelt {

// Decided by the range of bytes each spans: "no" is certain, interleaved views count as "yes".
bool share_bytes(const at::Tensor& a, const at::Tensor& b);

// For two views of one memory: do they have an element in common? "No" is certain: what it relies
// on about the symbols becomes a guard.
bool share_elements(const TensorType& a, const TensorType& b, SymbolTable& symbols);

// Do two elements of the tensor lie in one place (expand, overlapping windows)? Likewise.
bool overlaps_itself(const TensorType& type, SymbolTable& symbols);

}  // namespace smelt
