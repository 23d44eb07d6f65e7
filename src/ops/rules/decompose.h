// Words for decompositions: tensors as terms, so that a rule reads like the formula it writes.
//
// The rules keep to two things. Numbers of f16 and bf16 tensors are widened to f32 once, at the
// arguments, and rounded once, at the results, as ATen's own kernels do. And a rule writes only ops
// that have no decomposition themselves.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "ops/rules/op_meaning.h"

namespace smelt {

// A tensor a decomposition computes with. Operators and functions on it write nodes.
struct Term {
  DecomposeQuery* q = nullptr;
  ValueId value = -1;

  const TensorType& type() const { return q->type_of(value); }
  Ref ref() const { return Ref{value}; }
};
using Dims = std::vector<int64_t>;
ArgList list_of(const Dims& dims);
ArgList list_of(const Sizes& sizes);

Term write(DecomposeQuery& q, std::string_view op, std::vector<Arg> args);

Term argument(DecomposeQuery& q, size_t i);
// Argument i in the dtype ATen computes in: f16 and bf16 as f32.
Term wide_argument(DecomposeQuery& q, size_t i);
// Argument i in `dtype`.
Term argument_as(DecomposeQuery& q, size_t i, DType dtype);
Term cast(Term x, DType dtype);

// Is result i read by anyone? If not it has no type here, and need not be replaced.
inline bool is_wanted(const DecomposeQuery& q, size_t i) {
  return i < q.node().results.size() && q.node().results[i] >= 0;
}
// The term in the dtype of result i stands for it, if that is wanted.
void give(DecomposeQuery& q, size_t i, Term x);
// The same with the result's sizes, which are a view of the term's.
void give_viewed(DecomposeQuery& q, size_t i, Term x);

Term operator+(Term a, Term b);
Term operator+(Term a, double b);
Term operator-(Term a, Term b);
Term operator-(Term a, double b);
Term operator-(double a, Term b);
Term operator-(Term a);
Term operator*(Term a, Term b);
Term operator*(Term a, double b);
Term operator/(Term a, Term b);
Term operator/(Term a, double b);
Term operator/(Term a, const Size& count);
inline Term square(Term a) { return a * a; }
Term exp(Term a);
Term log(Term a);
Term sqrt(Term a);
Term rsqrt(Term a);
Term abs(Term a);
Term power(Term a, double exponent);
Term equal_to(Term a, Arg number);
Term at_least(Term a, double number);
Term greater_than(Term a, double number);
Term select(Term condition, Term a, Term b);
Term fill_where(Term a, Term condition, Arg number);

Term sum(Term a, const Dims& dims, bool keepdim);
Term largest(Term a, const Dims& dims, bool keepdim);
Term smallest(Term a, const Dims& dims, bool keepdim);
// The norm of that order; nothing for NaN.
std::optional<Term> norm_of(Term x, double order, const Dims& dims, bool keepdim);

// Views.
Term view(Term a, const Sizes& sizes);
Term unsqueeze(Term a, int64_t dim);
Term slice(Term a, int64_t dim, const Size& start, const Size& end);
// What is left of a tensor of `sizes` reduced over `dims`, so that it broadcasts to the tensor.
Term along_rest(Term reduced, Sizes sizes, const Dims& dims);
// A vector over channels so that it broadcasts to [N, C, ...] of that rank.
Term along_channels(Term vector, int rank);

// Dimensions from the front; nothing if one is unknown. None and an empty list are all dimensions.
std::optional<Dims> dims_argument(const DecomposeQuery& q, size_t i, int rank);
Dims dims_from(int first, int end);
// Has the tensor elements, whatever the symbols are?
bool has_elements(const TensorType& type);
// How many, in these dimensions; nothing if perhaps none.
std::optional<Size> count_of(const TensorType& type, const Dims& dims);
// Is it f16, bf16, f32 or f64?
bool is_plain_float(const TensorType& type);

}  // namespace smelt
