// The rule of plain elementwise ops, made from a few facts: which dtypes the kernel takes, how the
// operands are promoted, what the result's dtype is.
#pragma once

#include <initializer_list>

#include "ops/rules/iterate.h"

namespace smelt {

enum class Gives : uint8_t { common, boolean };

struct Elementwise {
  Iteration iteration;
  Gives gives = Gives::common;
};

// One dtype for all operands and the result.
constexpr Elementwise keeps(Kinds takes) { return {{.takes = takes, .promote = false}}; }
// The common dtype.
constexpr Elementwise promotes(Kinds takes) { return {{.takes = takes}}; }
// The common dtype, where integers become the default float.
constexpr Elementwise floats(Kinds takes) { return {{.takes = takes, .floats = true}}; }
// Computed in the common dtype, the answer is a bool.
constexpr Elementwise tests(Kinds takes) { return {{.takes = takes}, Gives::boolean}; }
// An op whose kernel takes no 0-dim operand from another device.
constexpr Elementwise same_device(Elementwise rule) {
  rule.iteration.cpu_scalar = false;
  return rule;
}

// Pushes one result computed from the arguments at `operands`, in the order TensorIterator is given
// them.
Decision elementwise(ShapeQuery& q, const Elementwise& rule,
                     std::initializer_list<size_t> operands);

template <Elementwise rule, size_t... operands>
Decision over(ShapeQuery& q) {
  return elementwise(q, rule, {operands...});
}
template <Elementwise rule>
Decision unary(ShapeQuery& q) {
  return elementwise(q, rule, {0});
}
template <Elementwise rule>
Decision binary(ShapeQuery& q) {
  return elementwise(q, rule, {0, 1});
}
template <Elementwise rule>
Decision ternary(ShapeQuery& q) {
  return elementwise(q, rule, {0, 1, 2});
}

}  // namespace smelt
