// Batch norm in its many spellings. The CPU and CUDA kernels differ in layout and in the dtype of
// the statistics.
#include "ops/rules/cudnn_library.h"
#include "ops/rules/layout.h"
#include "ops/rules/promotion.h"
#include "ops/shapes/families.h"
#include "ops/shapes/norm_params.h"

namespace smelt {
namespace {

bool is_contiguous_somehow(SymbolTable& s, const TensorType& type) {
  return is_contiguous(s, type) || is_channels_last(s, type) || is_channels_last_3d(s, type);
}

// The format of a tensor that is contiguous in one of them.
MemoryFormat contiguous_format(SymbolTable& s, const TensorType& type) {
  if (is_contiguous(s, type)) return kContiguous;
  return is_channels_last_3d(s, type) ? kChannelsLast3d : kChannelsLast;
}

TensorType formatted(const TensorType& input, MemoryFormat format) {
  return fresh(input.dtype, input.device, input.sizes, *format_strides(input.sizes, format));
}

// Every parameter given is a vector over the channels.
bool params_fit(const ShapeQuery& q, const TensorType& input, const std::vector<size_t>& params) {
  if (input.rank() < 2) return false;
  for (size_t i : params) {
    if (q.is_none(i)) continue;
    const TensorType param = q.tensor(i);
    if (param.rank() != 1 || !equal(q.symbols(), param.sizes[0], input.sizes[1])) return false;
  }
  return true;
}

// Output and statistics; the arguments are input, weight, bias and perhaps running mean and
// variance, which functional forms clone first.
Decision normalize(ShapeQuery& q, bool has_running, bool training, bool clones_running = false) {
  SymbolTable& s = q.symbols();
  const TensorType input = q.tensor(0);
  const std::vector<size_t> params =
      has_running ? std::vector<size_t>{1, 2, 3, 4} : std::vector<size_t>{1, 2};
  const std::optional<DType> dtype = statistics_dtype(q, input, params);
  if (!dtype || !params_fit(q, input, params)) return Decision::forbid("the parameters do not fit");
  if (!training && (!has_running || q.is_none(3) || q.is_none(4))) {
    return Decision::forbid("there are no running statistics");
  }
  if (is_empty(s, input.sizes)) return Decision::forbid("the input is empty");
  if (!input.device.is_cpu()) {
    q.push(preserved(s, input));
    for (int i = 0; i < 2; ++i)
      q.push(fresh(accumulate_of(input.dtype), input.device, {input.sizes[1]}));
    return Decision::allow();
  }
  bool contiguous = is_contiguous_somehow(s, input);
  for (size_t i : params) {
    const bool cloned = clones_running && i >= 3;
    contiguous = contiguous && (cloned || q.is_none(i) || is_contiguous(s, q.tensor(i)));
  }
  q.push(formatted(input, contiguous ? contiguous_format(s, input) : suggested_format(s, input)));
  for (int i = 0; i < 2; ++i)
    q.push(fresh(*dtype, input.device, {training ? input.sizes[1] : Size(0)}));
  return Decision::allow();
}

// (input, weight, bias, running_mean, running_var, training, momentum, eps)
Decision batch_norm(ShapeQuery& q) { return normalize(q, true, q.boolean(5)); }

// The same without running statistics: (input, weight, bias, training, momentum, eps)
Decision batch_norm_no_stats(ShapeQuery& q) { return normalize(q, false, q.boolean(3)); }

// (input, weight, bias, running_mean, running_var, momentum, eps)
Decision batch_norm_inference(ShapeQuery& q) { return normalize(q, true, false); }

void push_new_running(ShapeQuery& q) {
  for (size_t i : {3, 4}) q.push(preserved(q.symbols(), q.tensor(i)));
}

Decision batch_norm_functional(ShapeQuery& q) {
  if (Decision made = normalize(q, true, q.boolean(5), true); !made) return made;
  push_new_running(q);
  return Decision::allow();
}

// With a fourth result that only cuDNN uses, whose size only cuDNN knows.
template <bool training, bool functional>
Decision batch_norm_reserving(ShapeQuery& q) {
  if (!q.tensor(0).device.is_cpu())
    return Decision::forbid("cuDNN may choose the size of a result");
  if (Decision made = normalize(q, true, training, functional); !made) return made;
  q.push(fresh(DType::u8, Device{}, {0}));
  if (functional) push_new_running(q);
  return Decision::allow();
}

// (grad_out, input, weight, running_mean, running_var, save_mean, save_invstd, train, eps,
// output_mask)
Decision batch_norm_backward(ShapeQuery& q) {
  SymbolTable& s = q.symbols();
  const TensorType grad = q.tensor(0), input = q.tensor(1);
  const bool cpu = input.device.is_cpu();
  // CUDA keeps the saved statistics of a half-precision input in f32 without calling that mixed.
  const std::vector<size_t> params =
      cpu ? std::vector<size_t>{2, 3, 4, 5, 6} : std::vector<size_t>{2, 3, 4};
  const std::optional<DType> dtype = statistics_dtype(q, input, params);
  if (!dtype || !params_fit(q, input, {2, 3, 4}) || grad.dtype != input.dtype ||
      !equal(s, grad.sizes, input.sizes) || is_empty(s, input.sizes)) {
    return Decision::forbid("dtypes or sizes do not fit");
  }
  MemoryFormat format = kContiguous;
  if (cpu) {
    const bool alike = is_contiguous_somehow(s, input) && is_contiguous_somehow(s, grad) &&
                       suggested_format(s, input) == suggested_format(s, grad);
    format = alike ? contiguous_format(s, input) : suggested_format(s, input);
  } else {
    const bool fused =
        is_wanted(q, 9, 0) && is_contiguous(s, input) && !equal(s, input.strides[1], 1);
    const bool by_channels = is_channels_last(s, input) || is_channels_last_3d(s, input);
    const bool all_wanted = is_wanted(q, 9, 0) && is_wanted(q, 9, 1) && is_wanted(q, 9, 2);
    if (q.is_none(2) || !(fused || (by_channels && all_wanted)))
      return Decision::forbid("the CUDA kernel for this layout is not modelled");
    // Without training its gradient is made contiguous, whatever the input is.
    if (!fused && q.boolean(7)) format = suggested_format(s, input);
  }
  const TensorType vector = fresh(*dtype, input.device, {input.sizes[1]});
  for (size_t k = 0; k < 3; ++k) q.results.emplace_back();
  if (is_wanted(q, 9, 0)) q.results[0] = formatted(input, format);
  for (size_t k : {1, 2}) {
    if (is_wanted(q, 9, k)) q.results[k] = vector;
  }
  return Decision::allow();
}

Decision batch_norm_backward_reserving(ShapeQuery& q) {
  if (!q.tensor(1).device.is_cpu()) return Decision::forbid("cuDNN may take this one");
  return batch_norm_backward(q);
}

// cudnn_batch_norm(input, weight, bias, running_mean, running_var, training, factor, epsilon)
Decision cudnn_batch_norm(ShapeQuery& q) {
  SymbolTable& s = q.symbols();
  const TensorType input = q.tensor(0), weight = q.tensor(1);
  if (!input.device.is_cuda() || !params_fit(q, input, {1, 2, 3, 4}) || is_empty(s, input.sizes))
    return Decision::forbid("the parameters do not fit");
  const bool training = q.boolean(5);
  std::optional<int64_t> kept = 0;
  if (training) kept = cudnn_batch_norm_bytes ? cudnn_batch_norm_bytes(input) : std::nullopt;
  if (!kept) return Decision::forbid("cuDNN chooses the size of a result");
  q.push(formatted(input, suggested_format(s, input)));
  for (int i = 0; i < 2; ++i)
    q.push(fresh(weight.dtype, weight.device, {training ? input.sizes[1] : Size(0)}));
  q.push(fresh(DType::u8, input.device, {*kept}));
  return Decision::allow();
}

// cudnn_batch_norm_backward(input, grad_output, weight, running_mean, running_var, save_mean,
// save_var, epsilon, reserve)
Decision cudnn_batch_norm_backward(ShapeQuery& q) {
  SymbolTable& s = q.symbols();
  const TensorType input = q.tensor(0), weight = q.tensor(2);
  if (!input.device.is_cuda() || !params_fit(q, input, {2}) || is_empty(s, input.sizes) ||
      !equal(s, input.sizes, q.tensor(1).sizes))
    return Decision::forbid("dtypes or sizes do not fit");
  q.push(formatted(input, suggested_format(s, input)));
  for (int i = 0; i < 2; ++i) q.push(fresh_like(weight, weight.sizes));
  return Decision::allow();
}

constexpr OpRow kRows[] = {
    {"aten::_batch_norm_no_update", batch_norm_reserving<false, false>},
    {"aten::_batch_norm_with_update", batch_norm_reserving<true, false>},
    {"aten::_batch_norm_with_update_functional", batch_norm_reserving<true, true>},
    {"aten::_native_batch_norm_legit", batch_norm},
    {"aten::_native_batch_norm_legit.no_stats", batch_norm_no_stats},
    {"aten::_native_batch_norm_legit_functional", batch_norm_functional},
    {"aten::_native_batch_norm_legit_no_training", batch_norm_inference},
    {"aten::batch_norm_backward", batch_norm_backward_reserving},
    {"aten::cudnn_batch_norm", cudnn_batch_norm, {.writes = {3, 4}, .writes_if = 5}},
    {"aten::cudnn_batch_norm_backward", cudnn_batch_norm_backward},
    {"aten::native_batch_norm",
     batch_norm,
     {.writes = {3, 4},
      .writes_if = 5,
      .recording = Recording::declared,
      .instead = "aten::_native_batch_norm_legit"}},
    {"aten::native_batch_norm_backward", batch_norm_backward},
};

}  // namespace

std::span<const OpRow> batch_norm_rows() { return kRows; }

}  // namespace smelt
