// The gradient of summed embedding rows, as sums at their indices: PyTorch's CUDA kernel sorts them.
#include "ops/decompositions/families.h"
#include "ops/rules/decompose.h"

namespace smelt {
namespace {

// _embedding_bag_dense_backward(grad, indices, offset2bag, bag_size, maximum_indices, num_weights,
// scale_grad_by_freq, mode, per_sample_weights, padding_idx)
bool dense_gradient(DecomposeQuery& q) {
  constexpr int64_t kSum = 0;
  const TensorType& grad = q.type(0);
  if (!is_wanted(q, 0) || !grad.device.is_cuda() || grad.dtype != DType::f32 || q.boolean(6) ||
      q.integer(7) != kSum || q.integer(9, -1) >= 0 || !has_elements(grad) ||
      !has_elements(q.type(1)))
    return false;
  Term rows = write(q, "aten::index_select", {q.arg(0), Size(0), q.arg(2)});
  if (!q.is_none(8)) rows = rows * unsqueeze(argument(q, 8), 1);
  give(q, 0,
       write(q, "aten::embedding_dense_backward",
             {rows.ref(), q.arg(1), q.arg(5), Size(-1), false}));
  return true;
}

const Meaning kMeanings[] = {
    {.name = "aten::_embedding_bag_dense_backward", .decompose = dense_gradient},
};

}  // namespace

std::span<const Meaning> embedding_bag_decompositions() { return kMeanings; }

}  // namespace smelt
