// What the element rules share: how rows are written, questions about sizes, places in tensors.
#pragma once

#include <initializer_list>
#include <string_view>

#include "ops/rules/op_meaning.h"

namespace smelt {

// About as many cheap instructions as the operation takes.
inline constexpr int kCheap = 1;
inline constexpr int kDivides = 4;
inline constexpr int kTranscendental = 15;  // exp, log, sin
inline constexpr int kCompound = 30;        // tanh, pow, erf

// Computed in the common dtype of arguments 0 .. operands-1; 0: in the dtype of the result.
constexpr Meaning pointwise(std::string_view name, uint8_t operands, ElementRule rule,
                            int cost = kCheap, Decision (*allows)(const NodeReader&) = nullptr) {
  return {.name = name,
          .pattern = Pattern::pointwise,
          .element = rule,
          .allows = allows,
          .operands = operands,
          .cost = cost};
}
// The same, where integers are computed as the default float.
constexpr Meaning floating(std::string_view name, uint8_t operands, ElementRule rule,
                           int cost = kTranscendental) {
  Meaning row = pointwise(name, operands, rule, cost);
  row.floating = true;
  return row;
}
constexpr Meaning elsewhere(Pattern pattern, std::string_view name, ElementRule rule,
                            Decision (*allows)(const NodeReader&) = nullptr, int cost = kCheap) {
  return {.name = name, .pattern = pattern, .element = rule, .allows = allows, .cost = cost};
}

// The same where further arguments may be numbers known only when the graph runs.
constexpr Meaning with_numbers(Meaning row, std::initializer_list<int> arguments) {
  for (int argument : arguments) row.numbers |= uint32_t{1} << argument;
  return row;
}

// Is argument i such a number?
inline bool is_unknown_number(const NodeReader& q, size_t i) {
  return q.is_tensor(i) && q.type(i).wrapped_number;
}

template <Expr (*function)(Expr)>
Expr unary(ElementQuery& q) {
  return function(q.computed(0));
}
template <Expr (*function)(Expr, Expr)>
Expr binary(ElementQuery& q) {
  return function(q.rounded(0), q.rounded(1));
}

// Is the size 1? Where a size is symbolic the node was typed by the answer for the symbols' hints,
// and a guard keeps it.
bool is_one(const Graph& graph, const Size& size);
// Is it at least 1, whatever the symbols are?
bool is_certainly_positive(const Size& size);
bool all_certainly_positive(const Sizes& sizes);

// A dimension counted from the end made one counted from the front; a scalar takes 0 and -1.
int dim_of(int64_t dim, int rank);

// The place in a tensor of `sizes` that broadcasts to `at` in one of `result`.
Indices broadcast_place(const Graph& graph, const Indices& at, const Sizes& result,
                        const Sizes& sizes);
// The place in a tensor of `sizes` of what is at `at` in one of `from`: the same elements in
// row-major order.
Indices reshaped_place(const Indices& at, const Sizes& from, const Sizes& sizes,
                       const loops::Extents& extents);

// An index that leaves [0, size) brought back to its ends, so that it may be loaded from.
Index clamped_index(ElementQuery& q, const Index& index, const Size& size);
Expr is_at_least(ElementQuery& q, const Index& index, const Size& bound);
Expr is_below(ElementQuery& q, const Index& index, const Size& bound);

// What eager gives at q.at() if its vectors give `by_vectors` and its scalar code `by_scalars`,
// which differ in the sign of a zero. Exact for dense operands in one order on one thread; of
// larger ones the few elements that each thread has left over are taken to be in vectors.
Expr as_eager_loops(ElementQuery& q, Expr by_vectors, Expr by_scalars);

}  // namespace smelt
