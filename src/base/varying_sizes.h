// The sizes of a traced program that may be others in its next run, as the parts of smelt hand them
// to each other.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/size.h"
#include "base/symbols.h"

namespace smelt {

// By dimension of a tensor: its size, where that varies.
using SymbolicDims = std::map<int, Size>;

struct VaryingSizes {
  SymbolTable symbols;                       // with what the program relies on
  std::vector<uint32_t> values;              // by symbol: which of the program's scalars it is
  std::vector<SymbolicDims> inputs;          // by input
  std::vector<std::optional<Size>> scalars;  // by scalar: as an expression, if it is a size
  // By symbol, 0 for others: the number that contents decide, and that a run reads on its way
  // (NumberStep::id). And what is computed of such numbers, by NumberStep::id.
  std::vector<uint32_t> late;
  std::map<uint32_t, Size> late_numbers;

  bool any() const { return !symbols.empty(); }
  bool any_late() const { return !late_numbers.empty(); }
};

}  // namespace smelt
