// The row of an op: the shape rule, which gives the result types, and the facts that are asked of it
// elsewhere.
#pragma once

#include <string_view>

#include "ops/rules/op_facts.h"
#include "ops/rules/shape_query.h"

namespace smelt {

struct OpRow {
  std::string_view name;  // "aten::mm"
  ShapeRule shape = nullptr;
  OpFacts facts = {};
};

}  // namespace smelt
