// Layer, group and RMS norm. Batch norm is in batch_norm.cpp.
#include "ops/rules/layout.h"
#include "ops/rules/promotion.h"
#include "ops/shapes/families.h"
#include "ops/shapes/norm_params.h"

namespace smelt {

bool is_wanted(const ShapeQuery& q, size_t mask, size_t k) {
  return q.arg(mask).get<ArgList>()[k].get<bool>();
}

std::optional<DType> statistics_dtype(const ShapeQuery& q, const TensorType& input,
                                      const std::vector<size_t>& params) {
  if (!takes(kFloats, input.dtype)) return std::nullopt;
  std::optional<DType> dtype;
  for (size_t i : params) {
    if (q.is_none(i)) continue;
    const TensorType param = q.tensor(i);
    if (param.device != input.device) return std::nullopt;
    if (dtype && *dtype != param.dtype) return std::nullopt;
    dtype = param.dtype;
  }
  if (!dtype || *dtype == input.dtype) return input.dtype;
  const bool mixed = takes(kHalves, input.dtype) && *dtype == DType::f32;
  if (!mixed) return std::nullopt;
  return DType::f32;
}

namespace {

// The normalized dimensions are the last ones; the statistics have size 1 there. Nothing where they
// do not fit.
std::optional<Sizes> statistics_sizes(const ShapeQuery& q, const TensorType& input,
                                      const Sizes& normalized,
                                      std::initializer_list<size_t> params) {
  SymbolTable& s = q.symbols();
  if (normalized.empty() || normalized.size() > input.sizes.size()) return std::nullopt;
  for (size_t i : params) {
    if (!q.is_none(i) && !equal(s, q.tensor(i).sizes, normalized)) return std::nullopt;
  }
  Sizes sizes = input.sizes;
  const size_t lead = sizes.size() - normalized.size();
  for (size_t i = 0; i < normalized.size(); ++i) {
    if (!equal(s, sizes[lead + i], normalized[i])) return std::nullopt;
    sizes[lead + i] = 1;
  }
  return sizes;
}

// The statistics are kept in the accumulation type on other devices than the CPU, which do not mix
// dtypes.
std::optional<DType> layer_statistics_dtype(const ShapeQuery& q, const TensorType& input,
                                            const std::vector<size_t>& params) {
  const std::optional<DType> dtype = statistics_dtype(q, input, params);
  if (!dtype || input.device.is_cpu()) return dtype;
  if (*dtype != input.dtype) return std::nullopt;
  return accumulate_of(input.dtype);
}

// native_layer_norm(input, normalized_shape, weight, bias, eps)
Decision layer_norm(ShapeQuery& q) {
  const TensorType input = q.tensor(0);
  const std::optional<DType> dtype = layer_statistics_dtype(q, input, {2, 3});
  const std::optional<Sizes> sizes = statistics_sizes(q, input, q.sizes(1), {2, 3});
  if (!dtype || !sizes) return Decision::forbid("dtypes or sizes do not fit");
  q.push(fresh_like(input, input.sizes));
  q.push(fresh(*dtype, input.device, *sizes));
  q.push(fresh(*dtype, input.device, *sizes));
  return Decision::allow();
}

// A gradient in the sizes of an argument, contiguous.
Decision push_gradient(ShapeQuery& q, bool wanted, size_t of) {
  if (!wanted) {
    q.results.emplace_back();
    return Decision::allow();
  }
  if (q.is_none(of)) return Decision::forbid("the gradient of an absent argument");
  const TensorType type = q.tensor(of);
  q.push(fresh_like(type, type.sizes));
  return Decision::allow();
}

// native_layer_norm_backward(grad_out, input, normalized_shape, mean, rstd, weight, bias,
// output_mask)
Decision layer_norm_backward(ShapeQuery& q) {
  const TensorType grad = q.tensor(0), input = q.tensor(1);
  const std::optional<DType> dtype = layer_statistics_dtype(q, input, {5, 6});
  const std::optional<Sizes> sizes = statistics_sizes(q, input, q.sizes(2), {5, 6});
  if (!dtype || !sizes || grad.dtype != input.dtype ||
      !equal(q.symbols(), grad.sizes, input.sizes)) {
    return Decision::forbid("dtypes or sizes do not fit");
  }
  if (q.tensor(3).dtype != *dtype || q.tensor(4).dtype != *dtype)
    return Decision::forbid("other statistics");
  if (Decision made = push_gradient(q, is_wanted(q, 7, 0), 1); !made) return made;
  if (Decision made = push_gradient(q, is_wanted(q, 7, 1), 5); !made) return made;
  return push_gradient(q, is_wanted(q, 7, 2), 6);
}

// _fused_rms_norm(input, normalized_shape, weight, eps); the CPU has no kernel of its own.
Decision rms_norm(ShapeQuery& q) {
  const TensorType input = q.tensor(0);
  if (input.device.is_cpu()) return Decision::forbid("the CPU decomposes this op");
  const std::optional<DType> dtype = layer_statistics_dtype(q, input, {2});
  const std::optional<Sizes> sizes = statistics_sizes(q, input, q.sizes(1), {2});
  if (!dtype || !sizes) return Decision::forbid("dtypes or sizes do not fit");
  q.push(fresh_like(input, input.sizes));
  q.push(fresh(*dtype, input.device, *sizes));
  return Decision::allow();
}

// _fused_rms_norm_backward(grad_out, input, normalized_shape, rstd, weight, output_mask)
Decision rms_norm_backward(ShapeQuery& q) {
  const TensorType grad = q.tensor(0), input = q.tensor(1);
  if (input.device.is_cpu()) return Decision::forbid("the CPU decomposes this op");
  const std::optional<DType> dtype = layer_statistics_dtype(q, input, {4});
  const std::optional<Sizes> sizes = statistics_sizes(q, input, q.sizes(2), {4});
  if (!dtype || !sizes || grad.dtype != input.dtype ||
      !equal(q.symbols(), grad.sizes, input.sizes)) {
    return Decision::forbid("dtypes or sizes do not fit");
  }
  if (Decision made = push_gradient(q, is_wanted(q, 5, 0), 1); !made) return made;
  return push_gradient(q, is_wanted(q, 5, 1), 4);
}

MemoryFormat group_format(SymbolTable& s, const TensorType& input) {
  return input.device.is_cpu() ? suggested_format(s, input) : kContiguous;
}

TensorType formatted(const TensorType& input, MemoryFormat format) {
  return fresh(input.dtype, input.device, input.sizes, *format_strides(input.sizes, format));
}

bool is_contiguous_as(SymbolTable& s, const TensorType& input, MemoryFormat format) {
  if (format == kChannelsLast) return is_channels_last(s, input);
  if (format == kChannelsLast3d) return is_channels_last_3d(s, input);
  return is_contiguous(s, input);
}

// native_group_norm(input, weight, bias, N, C, HxW, group, eps)
Decision group_norm(ShapeQuery& q) {
  SymbolTable& s = q.symbols();
  const TensorType input = q.tensor(0);
  const std::optional<DType> dtype = statistics_dtype(q, input, {1, 2});
  const Size channels = q.size_at(4), groups = q.size_at(6);
  if (less(s, channels, 1)) return Decision::forbid("an empty input");
  if (!dtype || !less(s, 0, groups) || !equal(s, modulo(channels, groups), 0)) {
    return Decision::forbid("dtypes or groups do not fit");
  }
  for (size_t i : {1, 2}) {
    if (q.is_none(i)) continue;
    const TensorType param = q.tensor(i);
    if (param.rank() != 1 || !equal(s, param.sizes[0], channels))
      return Decision::forbid("a parameter does not fit");
  }
  const MemoryFormat format = group_format(s, input);
  if (!is_contiguous_as(s, input, format)) return Decision::forbid("the input is not contiguous");
  if (!equal(s, input.numel(), q.size_at(3) * channels * q.size_at(5)))
    return Decision::forbid("the sizes do not fit");
  q.push(formatted(input, format));
  q.push(fresh(*dtype, input.device, {q.size_at(3), groups}));
  q.push(fresh(*dtype, input.device, {q.size_at(3), groups}));
  return Decision::allow();
}

// native_group_norm_backward(grad_out, input, mean, rstd, weight, N, C, HxW, group, output_mask)
Decision group_norm_backward(ShapeQuery& q) {
  SymbolTable& s = q.symbols();
  const TensorType grad = q.tensor(0), input = q.tensor(1);
  if (!takes(kFloats, input.dtype) || grad.dtype != input.dtype ||
      !statistics_dtype(q, input, {2, 3})) {
    return Decision::forbid("no rule for these dtypes");
  }
  if (!equal(s, input.numel(), q.size_at(5) * q.size_at(6) * q.size_at(7)) ||
      !equal(s, grad.numel(), input.numel())) {
    return Decision::forbid("the sizes do not fit");
  }
  q.results.emplace_back();
  if (is_wanted(q, 9, 0)) q.results[0] = formatted(input, group_format(s, input));
  if (Decision made = push_gradient(q, is_wanted(q, 9, 1), 4); !made) return made;
  return push_gradient(q, is_wanted(q, 9, 2), 4);
}

// _weight_norm_interface(v, g, dim): v scaled to the lengths g, and the lengths that it had.
Decision weight_norm(ShapeQuery& q) {
  const TensorType v = q.tensor(0), g = q.tensor(1);
  if (!v.device.is_cpu() || !g.device.is_cpu() || !takes(kReals, v.dtype) || g.dtype != v.dtype ||
      !is_row_major(v) || !is_row_major(g) || g.rank() != v.rank() || v.rank() == 0)
    return Decision::forbid("no rule for these operands");
  const int64_t dim = q.size() > 2 ? q.integer(2) : 0;
  if (dim != 0 && dim != v.rank() - 1) return Decision::forbid("no rule for this dimension");
  q.push(fresh_like(v, v.sizes));
  q.push(fresh_like(g, g.sizes));
  return Decision::allow();
}

// (grad_w, saved_v, saved_g, saved_norms, dim)
Decision weight_norm_backward(ShapeQuery& q) {
  const TensorType v = q.tensor(1), g = q.tensor(2);
  for (size_t i : {0, 1, 2, 3}) {
    const TensorType type = q.tensor(i);
    if (!type.device.is_cpu() || !takes(kReals, type.dtype) || type.dtype != v.dtype ||
        !is_row_major(type))
      return Decision::forbid("no rule for these operands");
  }
  q.push(fresh_like(v, v.sizes));
  q.push(fresh_like(g, g.sizes));
  return Decision::allow();
}

constexpr OpRow kRows[] = {
    {"aten::_weight_norm_interface", weight_norm},
    {"aten::_weight_norm_interface_backward", weight_norm_backward},
    {"aten::_fused_rms_norm", rms_norm},
    {"aten::_fused_rms_norm_backward", rms_norm_backward},
    {"aten::native_group_norm", group_norm},
    {"aten::native_group_norm_backward", group_norm_backward},
    {"aten::native_layer_norm", layer_norm},
    {"aten::native_layer_norm_backward", layer_norm_backward},
};

}  // namespace

std::span<const OpRow> norm_rows() { return kRows; }

}  // namespace smelt
