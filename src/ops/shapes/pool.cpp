// Pooling: windows that slide (max, average) or that follow the output size (adaptive). Results
// take the format the input's strides suggest, or are contiguous, op by op.
#include "ops/rules/layout.h"
#include "ops/rules/promotion.h"
#include "ops/shapes/families.h"

namespace smelt {
namespace {

enum class Format : uint8_t { suggested, contiguous };

// A new tensor of the input's dtype; the suggested format counts for batches only.
TensorType pooled(SymbolTable& s, const TensorType& input, Sizes sizes, Format format,
                  int spatial) {
  if (format == Format::contiguous || input.rank() != spatial + 2)
    return fresh_like(input, std::move(sizes));
  Sizes strides = *format_strides(sizes, suggested_format(s, input));
  return fresh(input.dtype, input.device, std::move(sizes), std::move(strides));
}

bool pools(SymbolTable& s, const TensorType& input, int spatial) {
  const bool rank_fits = input.rank() == spatial + 1 || input.rank() == spatial + 2;
  if (!rank_fits || !takes(kFloats, input.dtype)) return false;
  // Three dimensions without a batch can look like a channels-last image, or be channels-last once
  // they get one.
  if (spatial == 3 && input.rank() == 4) {
    if (!is_contiguous(s, input) || !(suggested_format(s, input) == kContiguous)) return false;
  }
  return !is_empty(s, std::span(input.sizes).last(spatial + 1));
}

// A list of one stands for all dimensions, an empty one for `otherwise`.
std::optional<Sizes> window_list(const ShapeQuery& q, size_t arg, int spatial,
                                 const Sizes& otherwise) {
  Sizes list = q.sizes(arg);
  if (list.empty()) list = otherwise;
  if (list.size() == 1) list.assign(spatial, list[0]);
  if (static_cast<int>(list.size()) != spatial) return std::nullopt;
  return list;
}

// The arguments from `kernel` on: kernel_size, stride, padding, [dilation], ceil_mode.
std::optional<Sizes> window_sizes(const ShapeQuery& q, const TensorType& input, size_t kernel,
                                  int spatial, bool has_dilation) {
  SymbolTable& s = q.symbols();
  const std::optional<Sizes> kernels = window_list(q, kernel, spatial, {});
  if (!kernels) return std::nullopt;
  const std::optional<Sizes> strides = window_list(q, kernel + 1, spatial, *kernels);
  const std::optional<Sizes> pads = window_list(q, kernel + 2, spatial, {});
  const std::optional<Sizes> dilations =
      has_dilation ? window_list(q, kernel + 3, spatial, {}) : Sizes(spatial, Size(1));
  if (!strides || !pads || !dilations) return std::nullopt;
  const bool ceil_mode = q.boolean(kernel + (has_dilation ? 4 : 3));
  Sizes sizes = input.sizes;
  for (int d = 0; d < spatial; ++d) {
    const Size &k = (*kernels)[d], &stride = (*strides)[d], &pad = (*pads)[d],
               &dilation = (*dilations)[d];
    if (less(s, k, 1) || less(s, stride, 1) || less(s, dilation, 1) || less(s, pad, 0))
      return std::nullopt;
    if (less(s, floor_div(k, 2), pad)) return std::nullopt;
    Size& size = sizes[input.rank() - spatial + d];
    if (!has_dilation && spatial == 3 && less(s, size, k)) return std::nullopt;
    const Size room = size + pad * 2 - dilation * (k - 1) - 1 + (ceil_mode ? stride - 1 : Size(0));
    Size out = floor_div(room, stride) + 1;
    // The last window must start inside the input or its left padding.
    if (ceil_mode && !less(s, (out - 1) * stride, size + pad)) out = out - 1;
    if (less(s, out, 1)) return std::nullopt;
    size = out;
  }
  return sizes;
}

Decision push_values(ShapeQuery& q, const TensorType& input, std::optional<Sizes> sizes,
                     Format format, int spatial, bool with_indices) {
  if (!sizes) return Decision::forbid("the windows do not fit");
  q.push(pooled(q.symbols(), input, std::move(*sizes), format, spatial));
  if (with_indices) {
    q.push(*q.results[0]);
    q.results[1]->dtype = DType::i64;
  }
  return Decision::allow();
}

// max_pool*_with_indices(self, kernel_size, stride, padding, dilation, ceil_mode)
template <int spatial>
Decision max_pool(ShapeQuery& q) {
  const TensorType input = q.tensor(0);
  if (!pools(q.symbols(), input, spatial)) return Decision::forbid("no rule for this input");
  if (spatial == 3 && !input.device.is_cpu())
    return Decision::forbid("not modelled on this device");
  return push_values(q, input, window_sizes(q, input, 1, spatial, true), Format::suggested, spatial,
                     true);
}

// max_pool*(self, ..): the values only, as max_pool*_with_indices gives them
template <int spatial>
Decision max_pool_values(ShapeQuery& q) {
  const Decision made = max_pool<spatial>(q);
  if (made) q.results.resize(1);
  return made;
}

// avg_pool*(self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
template <int spatial, Format format>
Decision average_pool(ShapeQuery& q) {
  const TensorType input = q.tensor(0);
  if (!pools(q.symbols(), input, spatial)) return Decision::forbid("no rule for this input");
  if (spatial == 3 && !takes(kReals, input.dtype))
    return Decision::forbid("the CPU has no such kernel");
  if (!q.is_none(6) && q.integer(6) == 0) return Decision::forbid("the divisor is 0");
  return push_values(q, input, window_sizes(q, input, 1, spatial, false), format, spatial, false);
}

// The gradient of the input, where the output's sizes are `sizes`.
Decision push_gradient(ShapeQuery& q, const TensorType& input, const std::optional<Sizes>& sizes,
                       Format format, int spatial) {
  const TensorType grad = q.tensor(0);
  if (!sizes || grad.dtype != input.dtype || grad.device != input.device ||
      !equal(q.symbols(), grad.sizes, *sizes)) {
    return Decision::forbid("the gradient does not fit");
  }
  q.push(pooled(q.symbols(), input, input.sizes, format, spatial));
  return Decision::allow();
}

// (grad_output, self, kernel_size, stride, padding, dilation, ceil_mode, indices)
template <int spatial>
Decision max_pool_backward(ShapeQuery& q) {
  const TensorType input = q.tensor(1), indices = q.tensor(7);
  if (!pools(q.symbols(), input, spatial)) return Decision::forbid("no rule for this input");
  if (spatial == 3 && !input.device.is_cpu())
    return Decision::forbid("not modelled on this device");
  if (!pools(q.symbols(), q.tensor(0), spatial))
    return Decision::forbid("no rule for this gradient");
  const std::optional<Sizes> sizes = window_sizes(q, input, 2, spatial, true);
  if (!sizes || indices.dtype != DType::i64 || !equal(q.symbols(), indices.sizes, *sizes)) {
    return Decision::forbid("the indices do not fit");
  }
  return push_gradient(q, input, sizes, Format::suggested, spatial);
}

// (grad_output, self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
template <int spatial, Format format>
Decision average_pool_backward(ShapeQuery& q) {
  const TensorType input = q.tensor(1);
  if (!pools(q.symbols(), input, spatial)) return Decision::forbid("no rule for this input");
  if (spatial == 3 && !takes(kReals, input.dtype))
    return Decision::forbid("the CPU has no such kernel");
  if (!q.is_none(7) && q.integer(7) == 0) return Decision::forbid("the divisor is 0");
  return push_gradient(q, input, window_sizes(q, input, 2, spatial, false), format, spatial);
}

// adaptive pools (self, output_size)
template <int spatial, Format format, bool with_indices>
Decision adaptive_pool(ShapeQuery& q) {
  SymbolTable& s = q.symbols();
  const TensorType input = q.tensor(0);
  const Sizes out = q.sizes(1);
  if (!pools(s, input, spatial) || out.size() != spatial)
    return Decision::forbid("no rule for this input");
  const bool structured = with_indices;
  if (!structured && !input.device.is_cpu() && !is_contiguous(s, input)) {
    return Decision::forbid("not modelled on this device");
  }
  Sizes sizes = input.sizes;
  for (int d = 0; d < spatial; ++d) {
    if (less(s, out[d], 0)) return Decision::forbid("a size is negative");
    sizes[input.rank() - spatial + d] = out[d];
  }
  return push_values(q, input, std::move(sizes), format, spatial, with_indices);
}

// (grad_output, self, [indices])
template <int spatial, Format format, bool with_indices>
Decision adaptive_pool_backward(ShapeQuery& q) {
  SymbolTable& s = q.symbols();
  const TensorType grad = q.tensor(0), input = q.tensor(1);
  if (!pools(s, input, spatial) || grad.rank() != input.rank())
    return Decision::forbid("no rule for this input");
  if (is_empty(s, std::span(grad.sizes).subspan(1))) return Decision::forbid("an empty gradient");
  if (!with_indices && !input.device.is_cpu() && !is_contiguous(s, input)) {
    return Decision::forbid("not modelled on this device");
  }
  Sizes sizes = input.sizes;
  for (int d = input.rank() - spatial; d < input.rank(); ++d) sizes[d] = grad.sizes[d];
  if (with_indices && !equal(s, q.tensor(2).sizes, sizes))
    return Decision::forbid("the indices do not fit");
  return push_gradient(q, input, sizes, format, spatial);
}

// im2col and col2im: (.., kernel_size, dilation, padding, stride), the first at argument `first`.
// How many windows there are in an image of these sizes; nothing where there are none.
std::optional<Size> column_count(const ShapeQuery& q, size_t first, std::span<const Size> image) {
  SymbolTable& s = q.symbols();
  std::vector<Sizes> lists;
  for (size_t i = 0; i < 4; ++i) {
    const std::optional<Sizes> list = window_list(q, first + i, 2, {});
    if (!list) return std::nullopt;
    lists.push_back(*list);
  }
  Size count = 1;
  for (size_t d = 0; d < 2; ++d) {
    const Size &kernel = lists[0][d], &dilation = lists[1][d], &pad = lists[2][d],
               &stride = lists[3][d];
    if (less(s, kernel, 1) || less(s, dilation, 1) || less(s, pad, 0) || less(s, stride, 1))
      return std::nullopt;
    const Size room = image[d] + pad * 2 - dilation * (kernel - 1) - 1;
    if (less(s, room, 0)) return std::nullopt;
    count = count * (floor_div(room, stride) + 1);
  }
  return count;
}

// im2col(self, ..)
Decision im2col(ShapeQuery& q) {
  const TensorType self = q.tensor(0);
  const bool fits = (self.rank() == 3 || self.rank() == 4) &&
                    !is_empty(q.symbols(), std::span(self.sizes).last(3));
  if (!fits || !takes(kDifferentiable | kBool, self.dtype))
    return Decision::forbid("no rule for this input");
  const std::optional<Size> count = column_count(q, 1, std::span(self.sizes).last(2));
  const std::optional<Sizes> kernel = window_list(q, 1, 2, {});
  if (!count || !kernel) return Decision::forbid("the windows do not fit");
  Sizes sizes(self.sizes.begin(), self.sizes.end() - 2);
  sizes.back() = sizes.back() * (*kernel)[0] * (*kernel)[1];
  sizes.push_back(*count);
  q.push(fresh_like(self, std::move(sizes)));
  return Decision::allow();
}

// col2im(self, output_size, ..)
Decision col2im(ShapeQuery& q) {
  SymbolTable& s = q.symbols();
  const TensorType self = q.tensor(0);
  const Sizes image = q.sizes(1);
  const bool fits =
      (self.rank() == 2 || self.rank() == 3) && !is_empty(s, std::span(self.sizes).last(2));
  if (!fits || !takes(kDifferentiable | kBool, self.dtype) || image.size() != 2 ||
      less(s, image[0], 1) || less(s, image[1], 1))
    return Decision::forbid("no rule for this input");
  const std::optional<Size> count = column_count(q, 2, image);
  const std::optional<Sizes> kernel = window_list(q, 2, 2, {});
  if (!count || !kernel || !equal(s, self.sizes.back(), *count))
    return Decision::forbid("the windows do not fit");
  const Size area = (*kernel)[0] * (*kernel)[1];
  Sizes sizes(self.sizes.begin(), self.sizes.end() - 1);
  if (!equal(s, modulo(sizes.back(), area), 0)) return Decision::forbid("no whole windows");
  sizes.back() = floor_div(sizes.back(), area);
  sizes.insert(sizes.end(), image.begin(), image.end());
  q.push(fresh_like(self, std::move(sizes)));
  return Decision::allow();
}

constexpr Format kSuggested = Format::suggested;
constexpr Format kPlain = Format::contiguous;

constexpr OpRow kRows[] = {
    {"aten::_adaptive_avg_pool2d", adaptive_pool<2, kSuggested, false>},
    {"aten::_adaptive_avg_pool2d_backward", adaptive_pool_backward<2, kSuggested, false>},
    {"aten::_adaptive_avg_pool3d", adaptive_pool<3, kPlain, false>},
    {"aten::_adaptive_avg_pool3d_backward", adaptive_pool_backward<3, kPlain, false>},
    {"aten::adaptive_max_pool2d", adaptive_pool<2, kSuggested, true>},
    {"aten::adaptive_max_pool2d_backward", adaptive_pool_backward<2, kSuggested, true>},
    {"aten::adaptive_max_pool3d", adaptive_pool<3, kPlain, true>},
    {"aten::adaptive_max_pool3d_backward", adaptive_pool_backward<3, kPlain, true>},
    {"aten::avg_pool2d", average_pool<2, kSuggested>},
    {"aten::avg_pool2d_backward", average_pool_backward<2, kSuggested>},
    {"aten::avg_pool3d", average_pool<3, kPlain>},
    {"aten::avg_pool3d_backward", average_pool_backward<3, kPlain>},
    {"aten::col2im", col2im},
    {"aten::im2col", im2col},
    {"aten::max_pool2d", max_pool_values<2>},
    {"aten::max_pool2d_with_indices", max_pool<2>},
    {"aten::max_pool2d_with_indices_backward", max_pool_backward<2>},
    {"aten::max_pool3d", max_pool_values<3>},
    {"aten::max_pool3d_with_indices", max_pool<3>},
    {"aten::max_pool3d_with_indices_backward", max_pool_backward<3>},
};

}  // namespace

std::span<const OpRow> pool_rows() { return kRows; }

}  // namespace smelt
