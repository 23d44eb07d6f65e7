// A rule asks for the value of a number that is known only when the graph runs.
#pragma once

#include "base/error.h"

namespace smelt {

// Thrown by the readers of arguments, caught by whoever asks a rule: the rule can't.
class NotLiteral : public InternalError {
 public:
  using InternalError::InternalError;
};

// What the rule decides, or a refusal where it needs such a value.
template <class Rule>
Decision with_literals(const Rule& rule) {
  try {
    return rule();
  } catch (const NotLiteral& missing) {
    return Decision::forbid(missing.what());
  }
}

}  // namespace smelt
