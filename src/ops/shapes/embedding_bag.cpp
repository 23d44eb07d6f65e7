// Sums, means and maxima of embedding rows, on the CPU and on CUDA.
#include "ops/rules/layout.h"
#include "ops/rules/promotion.h"
#include "ops/shapes/families.h"

namespace smelt {
namespace {

enum Mode : int64_t { sum = 0, mean = 1, max = 2 };

bool is_index(const TensorType& type) {
  return type.dtype == DType::i64 || type.dtype == DType::i32;
}

// (weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights,
// include_last_offset, padding_idx)
template <bool for_backward>
Decision embedding_bag(ShapeQuery& q) {
  SymbolTable& s = q.symbols();
  const TensorType weight = q.tensor(0), indices = q.tensor(1), offsets = q.tensor(2);
  const int64_t mode = q.integer(4);
  const bool include_last = q.boolean(7);
  const bool on_cuda = weight.device.is_cuda();
  if (!weight.device.is_cpu() && !on_cuda) return Decision::forbid("not modelled on this device");
  if (weight.rank() != 2 || indices.rank() != 1 || offsets.rank() != 1 || !is_index(indices) ||
      offsets.dtype != indices.dtype || !takes(kFloats, weight.dtype) || mode < sum || mode > max) {
    return Decision::forbid("no rule for these operands");
  }
  if (is_empty(s, offsets.sizes) || is_empty(s, weight.sizes))
    return Decision::forbid("no bags or no weights");
  const Size bags = include_last ? offsets.sizes[0] - 1 : offsets.sizes[0];
  bool fast = weight.dtype != DType::f64 && equal(s, weight.strides[1], 1) && q.integer(8) < 0;
  if (!q.is_none(6)) {
    const TensorType scale = q.tensor(6);
    const bool fits =
        mode == sum && scale.dtype == weight.dtype && equal(s, scale.sizes, indices.sizes);
    if (!fits) return Decision::forbid("the weights of the samples do not fit");
    fast = fast && equal(s, scale.strides[0], 1);
  }
  const auto vector = [&](Size size) {
    return fresh(offsets.dtype, weight.device, {std::move(size)});
  };
  q.push(fresh_like(weight, {bags, weight.sizes[1]}));
  if (on_cuda) {
    q.push(vector(indices.sizes[0]));
    q.push(vector(offsets.sizes[0]));
    q.push(mode == max ? fresh(offsets.dtype, weight.device, {bags, weight.sizes[1]}) : vector(0));
    return Decision::allow();
  }
  q.push(vector(mode == sum && fast ? Size(0) : indices.sizes[0]));
  q.push(vector(for_backward || mode != sum ? bags : offsets.sizes[0]));
  if (mode == max) {
    q.push(fresh(offsets.dtype, weight.device, {bags, weight.sizes[1]}));
  } else {
    q.push(*q.results[2]);
  }
  return Decision::allow();
}

// A dense gradient of the weight: (grad, ..., num_weights at `count`, ...).
template <size_t count>
Decision dense_gradient(ShapeQuery& q) {
  const TensorType grad = q.tensor(0);
  const bool is_known = grad.device.is_cpu() || grad.device.is_cuda();
  if (!is_known || grad.rank() != 2 || !takes(kFloats, grad.dtype)) {
    return Decision::forbid("no rule for this gradient");
  }
  q.push(fresh_like(grad, {q.size_at(count), grad.sizes[1]}));
  return Decision::allow();
}

// (grad, indices, offsets, offset2bag, bag_size, maximum_indices, num_weights, scale_grad_by_freq,
// mode, sparse, ...)
Decision embedding_bag_backward(ShapeQuery& q) {
  if (q.boolean(9)) return Decision::forbid("the gradient is sparse");
  return dense_gradient<6>(q);
}

// (grad, weight, indices, offsets, offset2bag, mode, padding_idx)
Decision sample_weights_gradient(ShapeQuery& q) {
  const TensorType grad = q.tensor(0), indices = q.tensor(2);
  if (!grad.device.is_cpu() || grad.rank() != 2 || indices.rank() != 1 ||
      !takes(kFloats, grad.dtype) || q.tensor(1).dtype != grad.dtype || q.integer(5) != sum) {
    return Decision::forbid("no rule for these operands");
  }
  q.push(fresh_like(grad, {indices.sizes[0]}));
  return Decision::allow();
}

constexpr OpRow kRows[] = {
    {"aten::_embedding_bag", embedding_bag<true>, {.may_fail = true}},
    {"aten::_embedding_bag_backward", embedding_bag_backward, {.may_fail = true}},
    {"aten::_embedding_bag_dense_backward", dense_gradient<5>, {.may_fail = true}},
    {"aten::_embedding_bag_forward_only", embedding_bag<false>, {.may_fail = true}},
    {"aten::_embedding_bag_per_sample_weights_backward",
     sample_weights_gradient,
     {.may_fail = true}},
};

}  // namespace

std::span<const OpRow> embedding_bag_rows() { return kRows; }

}  // namespace smelt
