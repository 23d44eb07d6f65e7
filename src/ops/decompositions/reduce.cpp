// Means, variances, norms and pairs of extremes by way of sums and single extremes.
#include <algorithm>
#include <cmath>

#include "ops/decompositions/families.h"
#include "ops/rules/decompose.h"
#include "ops/rules/promotion.h"

namespace smelt {

std::optional<Term> norm_of(Term x, double order, const Dims& dims, bool keepdim) {
  if (std::isnan(order)) return std::nullopt;
  if (order == 0) {
    const Term counts = write(*x.q, "aten::ne.Scalar", {x.ref(), 0.0});
    return sum(cast(counts, x.type().dtype), dims, keepdim);
  }
  if (order == 2) return sqrt(sum(square(x), dims, keepdim));
  const Term magnitude = abs(x);
  if (order == 1) return sum(magnitude, dims, keepdim);
  if (std::isinf(order)) {
    return order > 0 ? largest(magnitude, dims, keepdim) : smallest(magnitude, dims, keepdim);
  }
  return power(sum(power(magnitude, order), dims, keepdim), 1 / order);
}

namespace {

constexpr size_t kAbsent = 99;  // the place of an argument an op does not have

// mean(self, dtype), mean.dim(self, dim, keepdim, dtype): added up in the result's dtype, widened
template <size_t dims_at, size_t keepdim_at>
bool mean(DecomposeQuery& q) {
  const TensorType type = q.type(0);
  if (!takes(kNoComplex, type.dtype) || !is_wanted(q, 0) || !is_plain_float(q.result(0)))
    return false;
  const std::optional<Dims> dims = dims_argument(q, dims_at, type.rank());
  if (!dims) return false;
  const std::optional<Size> count = count_of(type, *dims);
  if (!count) return false;
  const Term x = argument_as(q, 0, accumulate_of(q.result(0).dtype));
  give(q, 0, sum(x, *dims, q.boolean(keepdim_at, false)) / *count);
  return true;
}

// By the degrees of freedom that are left, of which there are none less than 0.
Term divided_by_freedom(Term squares, const Size& count, double correction) {
  if (correction == std::floor(correction))
    return squares / max(Size(0), count - static_cast<int64_t>(correction));
  return squares / std::max(0.0, static_cast<double>(count.known()) - correction);
}

// The sum of the squares of x - mean. Of equal numbers the mean may be rounded, but their variance
// is exactly 0: the gradient of a deviation of 0 is 0, and next to it as large as any. (0 times
// what is not finite is NaN, as it should be.)
Term squared_distances(Term x, Term mean, const Dims& dims, bool keepdim) {
  const Sizes sizes = x.type().sizes;
  const Term squares = sum(square(x - along_rest(mean, sizes, dims)), dims, keepdim);
  const Term greatest = along_rest(largest(x, dims, keepdim), sizes, dims);
  const Term others = write(*x.q, "aten::ne.Tensor", {x.ref(), greatest.ref()});
  const Term varies = write(*x.q, "aten::any.dims", {others.ref(), list_of(dims), keepdim});
  return select(varies, squares, squares * 0.0);
}

// var, std (self, dim, correction, keepdim), alone or with the mean as the second result
template <bool root>
bool variance(DecomposeQuery& q) {
  const TensorType type = q.type(0);
  if (!is_plain_float(type)) return false;
  const std::optional<Dims> dims = dims_argument(q, 1, type.rank());
  if (!dims) return false;
  const std::optional<Size> count = count_of(type, *dims);
  if (!count || !(count->is_known() || q.is_none(2) || q.arg(2).is<Size>())) return false;
  const Term x = wide_argument(q, 0);
  const bool keepdim = q.boolean(3, false);
  const Term mean = sum(x, *dims, keepdim) / *count;
  const Term squares = squared_distances(x, mean, *dims, keepdim);
  const Term result = divided_by_freedom(squares, *count, q.number(2, 1.0));
  if (is_wanted(q, 0)) give(q, 0, root ? sqrt(result) : result);
  give(q, 1, mean);
  return true;
}

// linalg_vector_norm(self, ord, dim, keepdim, dtype), norm.ScalarOpt_dim(self, p, dim, keepdim)
bool vector_norm(DecomposeQuery& q) {
  const TensorType type = q.type(0);
  if (!is_plain_float(type) || !is_wanted(q, 0) || !is_plain_float(q.result(0))) return false;
  if (!q.is_none(1) && !q.arg(1).is<double>() && !q.arg(1).is<Size>()) return false;
  const std::optional<Dims> dims = dims_argument(q, 2, type.rank());
  if (!dims || !has_elements(type)) return false;
  const Term x = argument_as(q, 0, accumulate_of(q.result(0).dtype));
  const std::optional<Term> norm = norm_of(x, q.number(1, 2.0), *dims, q.boolean(3));
  if (norm) give(q, 0, *norm);
  return norm.has_value();
}

// Kernels find the extreme of floats only where the sign of a zero is not seen (loose_extremes).
bool is_left_to_torch(const DecomposeQuery& q) {
  return is_floating(q.type(0).dtype) && !q.node().traits.loose;
}

// aminmax(self, dim, keepdim)
bool aminmax(DecomposeQuery& q) {
  if (is_left_to_torch(q)) return false;
  const TensorType type = q.type(0);
  const std::optional<Dims> dims = dims_argument(q, 1, type.rank());
  if (!dims || !takes(kNoComplex, type.dtype) || !has_elements(type)) return false;
  const Term x = argument(q, 0);
  if (is_wanted(q, 0)) give(q, 0, smallest(x, *dims, q.boolean(2)));
  if (is_wanted(q, 1)) give(q, 1, largest(x, *dims, q.boolean(2)));
  return true;
}

// max.dim, min.dim (self, dim, keepdim): of equal values the first is meant, and the first NaN
template <bool greatest>
bool extreme_and_place(DecomposeQuery& q) {
  if (is_wanted(q, 0) && is_left_to_torch(q)) return false;
  const TensorType type = q.type(0);
  const Kinds kinds = is_wanted(q, 1) ? kNumbers : kNoComplex;
  const std::optional<Dims> dims = dims_argument(q, 1, type.rank());
  if (!dims || dims->empty() || !takes(kinds, type.dtype) || !has_elements(type)) return false;
  const Term x = argument(q, 0);
  const bool keepdim = q.boolean(2);
  if (is_wanted(q, 0))
    give(q, 0, greatest ? largest(x, *dims, keepdim) : smallest(x, *dims, keepdim));
  if (is_wanted(q, 1)) {
    give(q, 1,
         write(q, greatest ? "aten::argmax" : "aten::argmin", {x.ref(), (*dims)[0], keepdim}));
  }
  return true;
}

const Meaning kMeanings[] = {
    {.name = "aten::aminmax", .decompose = aminmax},
    {.name = "aten::linalg_vector_norm", .decompose = vector_norm},
    {.name = "aten::max.dim", .decompose = extreme_and_place<true>},
    {.name = "aten::mean", .decompose = mean<kAbsent, kAbsent>},
    {.name = "aten::mean.dim", .decompose = mean<1, 2>},
    {.name = "aten::min.dim", .decompose = extreme_and_place<false>},
    {.name = "aten::norm.ScalarOpt_dim", .decompose = vector_norm},
    {.name = "aten::std.correction", .decompose = variance<true>},
    {.name = "aten::std_mean.correction", .decompose = variance<true>},
    {.name = "aten::var.correction", .decompose = variance<false>},
    {.name = "aten::var_mean.correction", .decompose = variance<false>},
};

}  // namespace

std::span<const Meaning> reduce_decompositions() { return kMeanings; }

}  // namespace smelt
