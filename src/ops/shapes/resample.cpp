// Images put together again or sampled at given places, and draws from distributions.
#include "ops/rules/geometry.h"
#include "ops/rules/layout.h"
#include "ops/rules/promotion.h"
#include "ops/shapes/families.h"
#include "ops/shapes/options.h"

namespace smelt {
namespace {

// max_unpool2d(self, indices, output_size), 3d: with stride and padding behind.
template <int spatial>
Decision max_unpool(ShapeQuery& q) {
  SymbolTable& s = q.symbols();
  const TensorType self = q.tensor(0), indices = q.tensor(1);
  const Sizes output = q.sizes(2);
  const int batch = self.rank() - spatial;
  if ((batch != 1 && batch != 2) || output.size() != spatial || indices.dtype != DType::i64 ||
      indices.device != self.device || !equal(s, indices.sizes, self.sizes) ||
      is_empty(s, self.sizes) || !takes(kFloats, self.dtype))
    return Decision::forbid("no rule for these operands");
  for (size_t i = 3; i < q.size(); ++i)
    if (q.integers(i).size() != spatial) return Decision::forbid("the windows do not fit");
  Sizes sizes(self.sizes.begin(), self.sizes.begin() + batch);
  sizes.insert(sizes.end(), output.begin(), output.end());
  for (const Size& size : output)
    if (less(s, size, 1)) return Decision::forbid("an empty result");
  if (spatial == 3 && !is_row_major(self)) return Decision::forbid("no rule for this layout");
  const MemoryFormat format = spatial == 2 ? suggested_format(s, self) : kContiguous;
  const std::optional<Sizes> strides = format_strides(sizes, format);
  if (!strides) return Decision::forbid("no rule for this layout");
  q.push(fresh(self.dtype, self.device, sizes, *strides));
  return Decision::allow();
}

// fractional_max_pool3d_backward(grad_output, self, kernel_size, output_size, indices)
Decision fractional_pool_gradient(ShapeQuery& q) {
  SymbolTable& s = q.symbols();
  const TensorType grad = q.tensor(0), self = q.tensor(1), indices = q.tensor(4);
  const Sizes output = q.sizes(3);
  const bool fits = (self.rank() == 4 || self.rank() == 5) && output.size() == 3 &&
                    grad.rank() == self.rank() && grad.dtype == self.dtype &&
                    grad.device == self.device && takes(kFloats, self.dtype) &&
                    indices.dtype == DType::i64 && equal(s, indices.sizes, grad.sizes) &&
                    equal(s, std::span(grad.sizes).last(3), output) && !is_empty(s, self.sizes);
  if (!fits) return Decision::forbid("no rule for these operands");
  q.push(fresh_like(self, self.sizes));
  return Decision::allow();
}

// Images and the places to sample them at, from argument `at` on.
template <int spatial>
Decision check_sampling(const ShapeQuery& q, size_t at) {
  SymbolTable& s = q.symbols();
  const TensorType input = q.tensor(at), grid = q.tensor(at + 1);
  const bool fits = input.rank() == spatial + 2 && grid.rank() == spatial + 2 &&
                    input.dtype == grid.dtype && input.device == grid.device &&
                    takes(kFloats, input.dtype) && equal(s, input.sizes[0], grid.sizes[0]) &&
                    equal(s, grid.sizes.back(), spatial) && !is_empty(s, input.sizes);
  if (!fits) return Decision::forbid("no rule for these operands");
  const int64_t how = q.integer(at + 2), padding = q.integer(at + 3);
  if (how < 0 || how > 2 || (spatial == 3 && how == 2) || padding < 0 || padding > 2)
    return Decision::forbid("no such mode");
  return Decision::allow();
}

// grid_sampler(input, grid, interpolation_mode, padding_mode, align_corners)
template <int spatial>
Decision grid_sampler(ShapeQuery& q) {
  if (Decision fits = check_sampling<spatial>(q, 0); !fits) return fits;
  const TensorType input = q.tensor(0), grid = q.tensor(1);
  Sizes sizes = {input.sizes[0], input.sizes[1]};
  sizes.insert(sizes.end(), grid.sizes.begin() + 1, grid.sizes.end() - 1);
  q.push(fresh_like(input, sizes));
  return Decision::allow();
}

// (grad_output, input, grid, interpolation_mode, padding_mode, align_corners, output_mask)
template <int spatial>
Decision grid_sampler_gradient(ShapeQuery& q) {
  if (Decision fits = check_sampling<spatial>(q, 1); !fits) return fits;
  const TensorType input = q.tensor(1), grid = q.tensor(2);
  const ArgList& mask = q.arg(6).get<ArgList>();
  if (mask.at(0).get<bool>())
    q.push(fresh_like(input, input.sizes));
  else
    q.results.emplace_back();
  q.push(fresh_like(grid, grid.sizes));
  return Decision::allow();
}

// channel_shuffle(self, groups)
Decision channel_shuffle(ShapeQuery& q) {
  SymbolTable& s = q.symbols();
  const TensorType self = q.tensor(0);
  const Size groups = q.size_at(1);
  if (!self.device.is_cpu() || self.rank() < 3 || self.rank() > 4 || !takes(kAll, self.dtype) ||
      !less(s, 0, groups) || !equal(s, modulo(self.sizes[1], groups), 0))
    return Decision::forbid("no rule for this input");
  q.push(fresh(self.dtype, self.device, self.sizes,
               *format_strides(self.sizes, suggested_format(s, self))));
  return Decision::allow();
}

// rot90(self, k, dims): flipped, then seen with two dimensions exchanged.
Decision rot90(ShapeQuery& q) {
  const TensorType self = q.tensor(0);
  const std::vector<int64_t> dims = q.integers(2);
  if (dims.size() != 2 || self.rank() < 2 || self.conj || self.neg)
    return Decision::forbid("no rule for this input");
  const std::optional<int> first = wrap_dim(dims[0], self.rank()),
                           second = wrap_dim(dims[1], self.rank());
  if (!first || !second || *first == *second) return Decision::forbid("no such dimensions");
  const int64_t turns = ((q.integer(1) % 4) + 4) % 4;
  if (turns == 0) {
    q.push(fresh_like(self, self.sizes));
    return Decision::allow();
  }
  const TensorType flipped = preserved(q.symbols(), self);
  q.push(turns == 2 ? flipped : *transposed(flipped, *first, *second));
  return Decision::allow();
}

// multinomial(self, num_samples, replacement, generator)
Decision multinomial(ShapeQuery& q) {
  SymbolTable& s = q.symbols();
  const TensorType self = q.tensor(0);
  const Size samples = q.size_at(1);
  if ((self.rank() != 1 && self.rank() != 2) || !takes(kFloats, self.dtype) ||
      !less(s, 0, samples) || (!q.boolean(2) && less(s, self.sizes.back(), samples)) ||
      equal(s, self.sizes.back(), 0) || less(s, 1 << 24, self.sizes.back()))
    return Decision::forbid("no rule for these weights");
  Sizes sizes = {samples};
  if (self.rank() == 2) sizes.insert(sizes.begin(), self.sizes[0]);
  q.push(fresh(DType::i64, self.device, sizes));
  return Decision::allow();
}

// Draws of the shape of the first argument, row by row; the others are as large.
template <size_t operands>
Decision draws(ShapeQuery& q) {
  const TensorType self = q.tensor(0);
  for (size_t i = 0; i < operands; ++i) {
    const TensorType type = q.tensor(i);
    if (!takes(kReals, type.dtype) || type.dtype != self.dtype || type.device != self.device ||
        !equal(q.symbols(), type.sizes, self.sizes))
      return Decision::forbid("no rule for these operands");
  }
  q.push(fresh_like(self, self.sizes));
  return Decision::allow();
}

// histc(self, bins, min, max)
Decision histc(ShapeQuery& q) {
  const TensorType self = q.tensor(0);
  const Size bins = q.size_at(1);
  if (!self.device.is_cpu() || !takes(kFloats, self.dtype) || !less(q.symbols(), 0, bins) ||
      q.number(2) > q.number(3))
    return Decision::forbid("no rule for this input");
  q.push(fresh_like(self, {bins}));
  return Decision::allow();
}

// histogram.bin_ct(self, bins, range, weight, density), histogram.bins_tensor(self, bins, weight,
// density): how many there are in each bin, and where the bins end.
template <bool has_edges>
Decision histogram(ShapeQuery& q) {
  SymbolTable& s = q.symbols();
  const TensorType self = q.tensor(0);
  if (!self.device.is_cpu() || !takes(kReals, self.dtype))
    return Decision::forbid("no rule for this input");
  const size_t weight_at = has_edges ? 2 : 3;
  if (!q.is_none(weight_at)) {
    const TensorType weight = q.tensor(weight_at);
    if (weight.dtype != self.dtype || !weight.device.is_cpu() ||
        !equal(s, weight.sizes, self.sizes))
      return Decision::forbid("the weight does not fit");
  }
  Size bins;
  if constexpr (has_edges) {
    const TensorType edges = q.tensor(1);
    if (edges.rank() != 1 || edges.dtype != self.dtype || !edges.device.is_cpu())
      return Decision::forbid("no rule for these bins");
    bins = edges.sizes[0] - 1;
  } else {
    bins = q.size_at(1);
  }
  if (!less(s, 0, bins)) return Decision::forbid("no bins");
  q.push(fresh_like(self, {bins}));
  q.push(fresh_like(self, {bins + 1}));
  return Decision::allow();
}

// linspace(start, end, steps, ...) and logspace, with tensors for the ends; logspace has a base.
template <size_t options_at>
Decision space_of_tensors(ShapeQuery& q) {
  bool has_complex = false;
  for (size_t i : {0, 1}) {
    if (q.tensor(i).rank() != 0) return Decision::forbid("not two numbers");
    has_complex |= is_complex(q.tensor(i).dtype);
  }
  Options options{has_complex ? default_complex(q.default_float()) : q.default_float(), {}};
  if (Decision read = read_options(q, options_at, options); !read) return read;
  if (has_complex && !is_complex(options.dtype)) return Decision::forbid("no complex dtype");
  if (!takes(kInts | kDifferentiable, options.dtype) || less(q.symbols(), q.size_at(2), 0))
    return Decision::forbid("no rule for this dtype");
  q.push(fresh(options.dtype, options.device, {q.size_at(2)}));
  return Decision::allow();
}

// mvlgamma(self, p)
Decision multivariate_lgamma(ShapeQuery& q) {
  const TensorType self = q.tensor(0);
  if (!takes(kNumbers, self.dtype) || q.integer(1) < 1)
    return Decision::forbid("no rule for this input");
  q.push(fresh(floating_of(self.dtype, q.default_float()), self.device, self.sizes));
  return Decision::allow();
}

// frexp.Tensor(self): mantissa and exponent.
Decision frexp(ShapeQuery& q) {
  const TensorType self = q.tensor(0);
  if (!takes(kFloats, self.dtype)) return Decision::forbid("no rule for this dtype");
  q.push(preserved(q.symbols(), self));
  q.push(preserved(q.symbols(), self, DType::i32));
  return Decision::allow();
}

// resize(self, size, memory_format), resize_as(self, template, memory_format)
template <bool as_other>
Decision resized(ShapeQuery& q) {
  const TensorType self = q.tensor(0);
  const Sizes sizes = as_other ? q.tensor(1).sizes : q.sizes(1);
  if (!q.is_none(2) || self.conj || self.neg) return Decision::forbid("no rule for this layout");
  q.push(equal(q.symbols(), self.sizes, sizes) ? preserved(q.symbols(), self)
                                               : fresh_like(self, sizes));
  return Decision::allow();
}

// masked_scatter_backward(grad_output, mask, sizes)
Decision masked_scatter_gradient(ShapeQuery& q) {
  const TensorType grad = q.tensor(0);
  const Sizes sizes = q.sizes(2);
  Size count = 1;
  for (const Size& size : sizes) count = count * size;
  if (q.tensor(1).dtype != DType::b8 || !equal(q.symbols(), q.tensor(1).sizes, grad.sizes) ||
      less(q.symbols(), count, grad.numel()))
    return Decision::forbid("the sizes do not fit");
  q.push(fresh_like(grad, sizes));
  return Decision::allow();
}

constexpr OpRow kRows[] = {
    {"aten::_sample_dirichlet", draws<1>},
    {"aten::_standard_gamma", draws<1>},
    {"aten::binomial", draws<2>},
    {"aten::channel_shuffle", channel_shuffle},
    {"aten::fractional_max_pool3d_backward", fractional_pool_gradient},
    {"aten::frexp.Tensor", frexp},
    {"aten::grid_sampler_2d", grid_sampler<2>},
    {"aten::grid_sampler_2d_backward", grid_sampler_gradient<2>},
    {"aten::grid_sampler_3d", grid_sampler<3>},
    {"aten::grid_sampler_3d_backward", grid_sampler_gradient<3>},
    {"aten::histc", histc},
    {"aten::histogram.bin_ct", histogram<false>},
    {"aten::histogram.bins_tensor", histogram<true>},
    {"aten::linspace.Scalar_Tensor", space_of_tensors<3>},
    {"aten::linspace.Tensor_Scalar", space_of_tensors<3>},
    {"aten::linspace.Tensor_Tensor", space_of_tensors<3>},
    {"aten::logspace.Scalar_Tensor", space_of_tensors<4>},
    {"aten::logspace.Tensor_Scalar", space_of_tensors<4>},
    {"aten::logspace.Tensor_Tensor", space_of_tensors<4>},
    {"aten::masked_scatter_backward", masked_scatter_gradient, {.may_fail = true}},
    {"aten::max_unpool2d", max_unpool<2>, {.may_fail = true}},
    {"aten::max_unpool3d", max_unpool<3>, {.may_fail = true}},
    {"aten::multinomial", multinomial, {.may_fail = true}},
    {"aten::mvlgamma", multivariate_lgamma},
    {"aten::poisson", draws<1>, {.may_fail = true}},
    {"aten::resize", resized<false>},
    {"aten::resize_as", resized<true>},
    {"aten::rot90", rot90},
};

}  // namespace

std::span<const OpRow> resample_rows() { return kRows; }

}  // namespace smelt
