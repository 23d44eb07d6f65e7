// Elementwise results as torch's TensorIterator makes them: broadcast sizes, common dtype and
// device, and the strides, which follow the operands' (the essay is in iterate.cpp).
#pragma once

#include <vector>

#include "base/error.h"
#include "ops/rules/op_row.h"
#include "ops/rules/promotion.h"

namespace smelt {

// How the operands of an elementwise op become one computation.
struct Iteration {
  Kinds takes = kAll;   // common dtypes the kernel knows
  bool promote = true;  // operands are converted to their common dtype; else all must have the same
  bool floats = false;  // an integral common dtype becomes the default float
  bool cpu_scalar = true;  // one 0-dim CPU operand may go to another device's kernel
};

// What they become: the type of a result in the common dtype.
struct Iterated {
  std::vector<TensorType> operands;
  TensorType result;
};

// Fills `it.result` from `it.operands`, none of which is undefined.
Decision iterate(const ShapeQuery& q, const Iteration& rules, Iterated& it);

// The sizes of the operands broadcast together.
std::optional<Sizes> broadcast_all(SymbolTable& symbols, std::span<const TensorType> operands);
// The device of the result; nothing if the operands don't share one. One 0-dim CPU tensor may go
// with any.
std::optional<Device> common_device(std::span<const TensorType> operands, bool cpu_scalar = true);
// The strides of a result of `sizes`. The operands are of the dtype they are computed in.
Sizes iterated_strides(SymbolTable& symbols, std::span<const TensorType> operands,
                       const Sizes& sizes);

}  // namespace smelt
