// Layer and group norm as reductions and arithmetic. The variance is computed in two passes, mean
// first, which is at least as exact as ATen's one pass.
#include "ops/decompositions/families.h"
#include "ops/rules/decompose.h"

namespace smelt {
namespace {

struct Normalized {
  Term mean, rstd;
  Term value;
};

// With `keepdim` the statistics have size 1 in the reduced dimensions, without it they lack them.
Normalized normalize(Term x, const Dims& dims, const Size& count, double eps, bool keepdim) {
  const Sizes sizes = x.type().sizes;
  const Term mean = sum(x, dims, keepdim) / count;
  const Term centered = x - along_rest(mean, sizes, dims);
  const Term variance = sum(square(centered), dims, keepdim) / count;
  const Term rstd = rsqrt(variance + eps);
  return {mean, rstd, centered * along_rest(rstd, sizes, dims)};
}

// The gradient of x where `normalized` = (x - mean) * rstd and `grad` is that of `normalized`.
Term normalize_gradient(Term grad, Term normalized, Term rstd, const Dims& dims,
                        const Size& count) {
  const Term mean_grad = sum(grad, dims, true) / count;
  const Term projection = sum(grad * normalized, dims, true) / count;
  return (grad - mean_grad - normalized * projection) * rstd;
}

// native_layer_norm(input, normalized_shape, weight, bias, eps)
bool layer_norm(DecomposeQuery& q) {
  const TensorType type = q.type(0);
  const int inner = static_cast<int>(q.sizes(1).size());
  if (!is_plain_float(type) || !has_elements(type) || inner == 0 || inner > type.rank())
    return false;
  const Dims dims = dims_from(type.rank() - inner, type.rank());
  const std::optional<Size> count = count_of(type, dims);
  if (!count) return false;

  const Normalized normalized = normalize(wide_argument(q, 0), dims, *count, q.number(4), true);
  Term y = normalized.value;
  if (!q.is_none(2)) y = y * wide_argument(q, 2);
  if (!q.is_none(3)) y = y + wide_argument(q, 3);
  give(q, 0, y);
  give(q, 1, normalized.mean);
  give(q, 2, normalized.rstd);
  return true;
}

// native_layer_norm_backward(grad_out, input, normalized_shape, mean, rstd, weight, bias,
// output_mask)
bool layer_norm_backward(DecomposeQuery& q) {
  const TensorType type = q.type(1);
  const int inner = static_cast<int>(q.sizes(2).size());
  if (!is_plain_float(type) || !has_elements(type) || inner == 0 || inner > type.rank())
    return false;
  const Dims dims = dims_from(type.rank() - inner, type.rank());
  const Dims rows = dims_from(0, type.rank() - inner);
  const std::optional<Size> count = count_of(type, dims);
  if (!count) return false;

  const Term grad = wide_argument(q, 0);
  const Term rstd = wide_argument(q, 4);
  const Term normalized = (wide_argument(q, 1) - wide_argument(q, 3)) * rstd;
  if (is_wanted(q, 0)) {
    const Term weighted = q.is_none(5) ? grad : grad * wide_argument(q, 5);
    give(q, 0, normalize_gradient(weighted, normalized, rstd, dims, *count));
  }
  if (is_wanted(q, 1)) {
    const Term product = grad * normalized;
    give(q, 1, rows.empty() ? product : sum(product, rows, false));
  }
  if (is_wanted(q, 2)) give(q, 2, rows.empty() ? grad : sum(grad, rows, false));
  return true;
}

// A tensor [N, C, ...] seen as [N, groups, C / groups, ...].
struct Grouping {
  Sizes sizes;
  Sizes channels;    // of a vector over channels
  Sizes statistics;  // of a matrix [N, groups]
  Dims dims;         // those of one group
  Size count = 1;    // elements of one group
};

std::optional<Grouping> group(const TensorType& type, const Size& groups) {
  if (type.rank() < 2 || !is_plain_float(type) || !has_elements(type)) return std::nullopt;
  if (!type.sizes[1].is_known() || !groups.is_known() || groups.known() < 1 ||
      type.sizes[1].known() % groups.known() != 0) {
    return std::nullopt;
  }
  const Size per_group = type.sizes[1].known() / groups.known();
  Grouping g;
  g.sizes = {type.sizes[0], groups, per_group};
  g.channels = {groups, per_group};
  g.statistics = {type.sizes[0], groups, 1};
  for (int dim = 2; dim < type.rank(); ++dim) {
    g.sizes.push_back(type.sizes[dim]);
    g.channels.emplace_back(1);
    g.statistics.emplace_back(1);
  }
  g.dims = dims_from(2, static_cast<int>(g.sizes.size()));
  TensorType grouped = type;
  grouped.sizes = g.sizes;
  const std::optional<Size> count = count_of(grouped, g.dims);
  if (!count) return std::nullopt;
  g.count = *count;
  return g;
}

Term grouped(DecomposeQuery& q, size_t i, const Sizes& sizes) {
  const Term viewed = view(argument(q, i), sizes);
  return cast(viewed, accumulate_of(viewed.type().dtype));
}

// native_group_norm(input, weight, bias, N, C, HxW, group, eps)
bool group_norm(DecomposeQuery& q) {
  const std::optional<Grouping> g = group(q.type(0), q.size_at(6));
  if (!g) return false;
  const Normalized normalized =
      normalize(grouped(q, 0, g->sizes), g->dims, g->count, q.number(7), false);
  Term y = normalized.value;
  if (!q.is_none(1)) y = y * grouped(q, 1, g->channels);
  if (!q.is_none(2)) y = y + grouped(q, 2, g->channels);
  give_viewed(q, 0, y);
  give(q, 1, normalized.mean);
  give(q, 2, normalized.rstd);
  return true;
}

// native_group_norm_backward(grad_out, input, mean, rstd, weight, N, C, HxW, group, output_mask)
bool group_norm_backward(DecomposeQuery& q) {
  const std::optional<Grouping> g = group(q.type(1), q.size_at(8));
  if (!g || q.type(0).sizes != q.type(1).sizes) return false;
  const Term grad = grouped(q, 0, g->sizes);
  const Term rstd = grouped(q, 3, g->statistics);
  const Term normalized = (grouped(q, 1, g->sizes) - grouped(q, 2, g->statistics)) * rstd;
  if (is_wanted(q, 0)) {
    const Term weighted = q.is_none(4) ? grad : grad * grouped(q, 4, g->channels);
    give_viewed(q, 0, normalize_gradient(weighted, normalized, rstd, g->dims, g->count));
  }
  Dims others = dims_from(3, static_cast<int>(g->sizes.size()));
  others.insert(others.begin(), 0);
  if (is_wanted(q, 1)) give_viewed(q, 1, sum(grad * normalized, others, false));
  if (is_wanted(q, 2)) give_viewed(q, 2, sum(grad, others, false));
  return true;
}

const Meaning kMeanings[] = {
    {.name = "aten::native_group_norm", .decompose = group_norm},
    {.name = "aten::native_group_norm_backward", .decompose = group_norm_backward},
    {.name = "aten::native_layer_norm", .decompose = layer_norm},
    {.name = "aten::native_layer_norm_backward", .decompose = layer_norm_backward},
};

}  // namespace

std::span<const Meaning> norm_decompositions() { return kMeanings; }

}  // namespace smelt
