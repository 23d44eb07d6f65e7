// A symbolic size inside torch: c10::SymInt over a node that holds smelt's Size. What torch decides
// about such a size (a branch on size(0) == 1, say) becomes a guard of the recording's symbol
// table.
#pragma once

#include <c10/core/SymInt.h>

#include <memory>
#include <span>
#include <vector>

#include "base/size.h"
#include "base/symbols.h"

namespace smelt {

using SymbolsPtr = std::shared_ptr<SymbolTable>;

// A SymInt for the size: a plain integer if it is known.
c10::SymInt to_sym_int(const Size& size, const SymbolsPtr& symbols);
std::vector<c10::SymInt> to_sym_ints(std::span<const Size> sizes, const SymbolsPtr& symbols);

// The size behind a SymInt; an Error for a symbolic one that is not smelt's.
Size to_size(const c10::SymInt& value);

}  // namespace smelt
