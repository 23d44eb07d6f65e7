// Softmax, its logarithm, their gradients, and logsumexp: shifted by the maximum, so that nothing
// overflows. A row of -inf gives NaN, as in ATen, except where said.
#include <limits>

#include "ops/decompositions/families.h"
#include "ops/rules/decompose.h"
#include "ops/rules/layout.h"
#include "ops/rules/promotion.h"

namespace smelt {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The dimension of argument i, of a tensor that has elements.
std::optional<Dims> softmax_dims(const DecomposeQuery& q, const TensorType& type, size_t i) {
  if (type.rank() == 0 || !is_plain_float(type) || !has_elements(type)) return std::nullopt;
  if (!q.size_at(i).is_known()) return std::nullopt;
  const std::optional<int> dim = wrap_dim(q.integer(i), type.rank());
  if (!dim) return std::nullopt;
  return Dims{*dim};
}

Term softmax_of(Term x, Term highest, const Dims& dims) {
  const Term powers = exp(x - highest);
  return powers / sum(powers, dims, true);
}

// _softmax(self, dim, half_to_float)
bool softmax(DecomposeQuery& q) {
  const std::optional<Dims> dims = softmax_dims(q, q.type(0), 1);
  if (!dims) return false;
  const Term x = wide_argument(q, 0);
  give(q, 0, softmax_of(x, largest(x, *dims, true), *dims));
  return true;
}

// _safe_softmax(self, dim, dtype): 0 in rows of -inf
bool safe_softmax(DecomposeQuery& q) {
  const std::optional<Dims> dims = softmax_dims(q, q.type(0), 1);
  if (!dims || !is_wanted(q, 0)) return false;
  const Term converted = argument_as(q, 0, q.result(0).dtype);
  const Term x = cast(converted, accumulate_of(converted.type().dtype));
  const Term highest = largest(x, *dims, true);
  give(q, 0, fill_where(softmax_of(x, highest, *dims), equal_to(highest, -kInfinity), 0.0));
  return true;
}

// _log_softmax(self, dim, half_to_float)
bool log_softmax(DecomposeQuery& q) {
  const std::optional<Dims> dims = softmax_dims(q, q.type(0), 1);
  if (!dims) return false;
  const Term x = wide_argument(q, 0);
  const Term shifted = x - largest(x, *dims, true);
  give(q, 0, shifted - log(sum(exp(shifted), *dims, true)));
  return true;
}

// _softmax_backward_data(grad, output, dim, input_dtype)
bool softmax_backward(DecomposeQuery& q) {
  const std::optional<Dims> dims = softmax_dims(q, q.type(1), 2);
  if (!dims) return false;
  const Term grad = wide_argument(q, 0), output = wide_argument(q, 1);
  give(q, 0, (grad - sum(grad * output, *dims, true)) * output);
  return true;
}

// _log_softmax_backward_data(grad, output, dim, input_dtype)
bool log_softmax_backward(DecomposeQuery& q) {
  const std::optional<Dims> dims = softmax_dims(q, q.type(1), 2);
  if (!dims) return false;
  const Term grad = wide_argument(q, 0);
  give(q, 0, grad - exp(wide_argument(q, 1)) * sum(grad, *dims, true));
  return true;
}

// logsumexp(self, dim, keepdim): an infinite maximum is not subtracted
bool logsumexp(DecomposeQuery& q) {
  const TensorType type = q.type(0);
  const std::optional<Dims> dims = dims_argument(q, 1, type.rank());
  if (!dims || dims->empty() || !takes(kNoComplex, type.dtype) || !has_elements(type)) return false;
  const Term x = argument_as(q, 0, accumulate_of(floating_of(type.dtype, q.graph().default_float)));
  const bool keepdim = q.boolean(2);
  const Term highest = largest(x, *dims, keepdim);
  const Term shift = fill_where(highest, equal_to(abs(highest), kInfinity), 0.0);
  const Term powers = exp(x - along_rest(shift, type.sizes, *dims));
  give(q, 0, log(sum(powers, *dims, keepdim)) + shift);
  return true;
}

const Meaning kMeanings[] = {
    {.name = "aten::_log_softmax", .decompose = log_softmax},
    {.name = "aten::_log_softmax_backward_data", .decompose = log_softmax_backward},
    {.name = "aten::_safe_softmax", .decompose = safe_softmax},
    {.name = "aten::_softmax", .decompose = softmax},
    {.name = "aten::_softmax_backward_data", .decompose = softmax_backward},
    {.name = "aten::logsumexp", .decompose = logsumexp},
};

}  // namespace

std::span<const Meaning> softmax_decompositions() { return kMeanings; }

}  // namespace smelt
