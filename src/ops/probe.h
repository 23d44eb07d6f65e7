// Asks an element rule what it writes, not what it reads.
#pragma once

#include "ops/meaning.h"

namespace smelt {

// The kernel's outer dimensions are the places that the rule is asked of; its instructions are what
// the rule writes.
class Probe final : public ElementQuery {
 public:
  Probe(const Graph& graph, const Node& node, loops::Builder& builder);
  Expr load(ValueId value, const Indices& at) override;
};

}  // namespace smelt
