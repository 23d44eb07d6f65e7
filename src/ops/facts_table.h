// Facts of ops that have no shape rule of their own: those that decompose, change their arguments,
// ask on the host, or are left to PyTorch.
#pragma once

#include <span>
#include <string_view>

#include "ops/rules/op_facts.h"

namespace smelt {

struct FactsRow {
  // "aten::where.default": the overload without a name; "aten::where.self": that one;
  // "aten::where": all of which no other row speaks.
  std::string_view name;
  OpFacts facts;
};
std::span<const FactsRow> facts_table();

}  // namespace smelt
