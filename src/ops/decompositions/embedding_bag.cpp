// Summed embedding rows on CUDA. Where all bags have as many rows, as those of a matrix of indices,
// they are a sum over a dimension of gathered rows. The gradient is sums at their indices: PyTorch's
// CUDA kernel sorts them.
#include "ops/decompositions/families.h"
#include "ops/rules/decompose.h"
#include "ops/rules/layout.h"

namespace smelt {
namespace {

constexpr int64_t kSum = 0;

// Rows of each bag, as the offsets say that a matrix of indices has; 0: they may differ.
int64_t rows_of_bags(const DecomposeQuery& q, size_t offsets, const Size& indices) {
  const Node* made = q.maker(q.value(offsets));
  if (!made || made->op != OpName("aten::arange.start_step")) return 0;
  for (size_t i = 0; i < 3; ++i)
    if (!made->args[i].is<Size>() || !made->args[i].get<Size>().is_known()) return 0;
  const int64_t step = made->args[2].get<Size>().known();
  const bool whole = made->args[0].get<Size>().is(0) && made->args[1].get<Size>() == indices &&
                     step > 0 && indices.is_known() && indices.known() % step == 0;
  return whole ? step : 0;
}

// _embedding_bag(weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights,
// include_last_offset, padding_idx)
bool embedding_bag(DecomposeQuery& q) {
  const TensorType &weight = q.type(0), &indices = q.type(1);
  if (!weight.device.is_cuda() || q.integer(4) != kSum || !q.is_none(6) || q.boolean(7) ||
      q.integer(8, -1) >= 0 || !has_elements(weight) || !has_elements(indices))
    return false;
  const Size count = indices.sizes[0];
  const DType index = indices.dtype;
  const Device device = weight.device;
  const int64_t rows = rows_of_bags(q, 2, count);
  if (rows == 0) return false;
  const Size bags = count.known() / rows;
  if (is_wanted(q, 0)) {
    const Term places = write(q, "aten::view", {q.arg(1), ArgList{Arg(bags), Arg(Size(rows))}});
    const bool half = weight.dtype == DType::f16 || weight.dtype == DType::bf16;
    const Term found =
        cast(write(q, "aten::embedding", {q.arg(0), places.ref(), Size(-1), false, false}),
             half ? DType::f32 : weight.dtype);
    give(q, 0, write(q, "aten::sum.dim_IntList", {found.ref(), list_of(Dims{1}), false, None{}}));
  }
  if (is_wanted(q, 1)) {
    const Term bag =
        write(q, "aten::arange.start_step", {Size(0), bags, Size(1), index, None{}, device, false});
    const Term each = write(q, "aten::expand",
                            {unsqueeze(bag, 1).ref(), ArgList{Arg(bags), Arg(Size(rows))}, false});
    const Term all = write(q, "aten::clone", {each.ref(), kContiguous});
    give(q, 1, write(q, "aten::view", {all.ref(), ArgList{Arg(count)}}));
  }
  const auto filled = [&](const Size& size, int64_t number) {
    return write(q, "aten::full", {ArgList{Arg(size)}, Size(number), index, None{}, device, false});
  };
  if (is_wanted(q, 2)) give(q, 2, filled(bags, rows));
  if (is_wanted(q, 3)) give(q, 3, filled(0, 0));
  return true;
}

// Arguments of the gradient's two forms.
struct Places {
  size_t offsets, bags, weights, scale, mode, sparse, each, padding;  // 0: there is none
};

// _embedding_bag_dense_backward(grad, indices, offset2bag, bag_size, maximum_indices, num_weights,
// scale_grad_by_freq, mode, per_sample_weights, padding_idx)
constexpr Places kDense{0, 2, 5, 6, 7, 0, 8, 9};
// _embedding_bag_backward(grad, indices, offsets, offset2bag, bag_size, maximum_indices,
// num_weights, scale_grad_by_freq, mode, sparse, per_sample_weights, padding_idx)
constexpr Places kAny{2, 3, 6, 7, 8, 9, 10, 11};

template <const Places& at>
bool gradient(DecomposeQuery& q) {
  const TensorType& grad = q.type(0);
  if (!is_wanted(q, 0) || !grad.device.is_cuda() || grad.dtype != DType::f32 ||
      q.boolean(at.scale) || q.integer(at.mode) != kSum || q.integer(at.padding, -1) >= 0 ||
      (at.sparse > 0 && q.boolean(at.sparse)) || !has_elements(grad) || !has_elements(q.type(1)) ||
      q.type(at.bags).sizes != q.type(1).sizes)
    return false;
  const Size count = q.type(1).sizes[0];
  const int64_t each = at.offsets > 0 ? rows_of_bags(q, at.offsets, count) : 0;
  Term rows;
  if (each > 0 && grad.sizes[0] * each == count) {
    const Sizes repeated{grad.sizes[0], each, grad.sizes[1]};
    const Term all =
        write(q, "aten::expand", {unsqueeze(argument(q, 0), 1).ref(), list_of(repeated), false});
    rows = write(q, "aten::clone", {all.ref(), kContiguous});
    rows = write(q, "aten::view", {rows.ref(), list_of(Sizes{count, grad.sizes[1]})});
  } else {
    rows = write(q, "aten::index_select", {q.arg(0), Size(0), q.arg(at.bags)});
  }
  if (!q.is_none(at.each)) rows = rows * unsqueeze(argument(q, at.each), 1);
  give(q, 0,
       write(q, "aten::embedding_dense_backward",
             {rows.ref(), q.arg(1), q.arg(at.weights), Size(-1), false}));
  return true;
}

const Meaning kMeanings[] = {
    {.name = "aten::_embedding_bag", .decompose = embedding_bag},
    {.name = "aten::_embedding_bag_backward", .decompose = gradient<kAny>},
    {.name = "aten::_embedding_bag_dense_backward", .decompose = gradient<kDense>},
    {.name = "aten::_embedding_bag_forward_only", .decompose = embedding_bag},
};

}  // namespace

std::span<const Meaning> embedding_bag_decompositions() { return kMeanings; }

}  // namespace smelt
