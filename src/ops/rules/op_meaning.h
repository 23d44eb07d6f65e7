// The meaning of an op: a row with its rules, in one of the five forms that meaning.h names.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "ops/rules/decompose_query.h"
#include "ops/rules/element_query.h"

namespace smelt {

using ElementRule = Expr (*)(ElementQuery& q);

// A reduction of result(0)'s elements over dimensions of argument 0.
struct ReductionForm {
  loops::Reduction reduction = loops::Reduction::sum;
  std::vector<int> dims;  // reduced, ascending, not negative; all if the op got none
  bool keepdim = false;
  DType accumulate = DType::f32;  // elements are cast to it (any, all: != 0), the result from it
};
using ReductionRule = ReductionForm (*)(const NodeReader& q);

// A scan along dims[0] has the same form; its argument is cast to the result's dtype first.

// What is written over, or combined with, an argument or zeros.
struct UpdateForm {
  Sizes points;                             // one element is written at each, in row-major order
  std::optional<size_t> base;               // the argument that the result begins as; none: zeros
  std::optional<loops::Reduction> combine;  // with what is there; none: in its place
};
struct UpdatedElement {
  Indices place;  // in the result
  Expr element;
};
struct UpdateRule {
  UpdateForm (*form)(const NodeReader& q);
  UpdatedElement (*write)(ElementQuery& q);  // q.at() is a point
  Decision (*allows)(const NodeReader& q);
};

enum class Pattern : uint8_t {
  pointwise,  // reads each argument at the place that broadcasts to the result's
  view,       // the element is one of argument 0, elsewhere: no arithmetic
  gather,     // reads at computed places, or one of several arguments (index, cat, pad)
  factory,    // reads nothing
};

struct Meaning {
  std::string_view name;
  Pattern pattern = Pattern::pointwise;
  ElementRule element = nullptr;
  ReductionRule reduction = nullptr;
  ReductionRule scan = nullptr;
  const UpdateRule* update = nullptr;  // where the element rule, if there is one, refuses
  DecomposeRule decompose = nullptr;
  // May this node be lowered so (dtypes, literals)? Complex tensors, conj/neg bits, unknown numbers
  // and devices of the results are asked before by can_lower().
  Decision (*allows)(const NodeReader& q) = nullptr;
  // Which arguments promote together; the compute dtype is worked out from them. Empty: the
  // tensors and numbers among the first arguments as the rule's family says.
  bool floating = false;  // integers are computed as the default float
  uint8_t operands = 0;   // of a pointwise op: arguments 0 .. operands-1 promote together
  int cost = 1;           // of one element, in cheap instructions: exp is about 15
  // Further arguments (a bit each) that may be numbers known only when the graph runs: the element
  // rule reads them with operand(), rounded() or computed(). Any of the operands may be one.
  uint32_t numbers = 0;
  // Arguments (a bit each) that are tensors of which the type is asked, and no element.
  uint32_t unread = 0;
};

}  // namespace smelt
