#include "graph/effects.h"

#include "base/error.h"

namespace smelt::effects {

bool is_mutator(OpName op) { return op.str().ends_with('!'); }

OpName mutated_op(OpName op) {
  SMELT_CHECK(is_mutator(op), "'" + op.str() + "' is no mutator");
  return OpName(std::string_view(op.str()).substr(0, op.str().size() - 1));
}

OpName mutator_of(OpName op) {
  SMELT_CHECK(!is_mutator(op), "'" + op.str() + "' is a mutator already");
  return OpName(op.str() + "!");
}

}  // namespace smelt::effects
