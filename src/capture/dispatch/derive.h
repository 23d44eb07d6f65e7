// Result types with symbols, for rules that know integers only: the rule is asked at several
// assignments of the symbols, and each size is the expression over the argument's sizes that fits
// them all.
#pragma once

#include <functional>
#include <span>

#include "base/symbols.h"
#include "capture/dispatch/shapes.h"

namespace smelt {

using ConcreteRule = std::function<std::vector<Result>(std::span<const int64_t> symbol_values)>;

// Where no expression fits, the symbols of the call are specialised to their hints (guards say so).
std::vector<Result> derive_results(const Call& call, SymbolTable& symbols,
                                   const ConcreteRule& rule);

// The result types hold for the hinted sizes of the call alone.
void specialise_call(const Call& call, SymbolTable& symbols);

}  // namespace smelt
