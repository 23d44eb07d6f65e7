// Scaled dot product attention on CUDA: flash attention, the memory-efficient kernels, cuDNN. Each
// has a layout of its own for what it gives, and another idea of where the state of the random
// generator is returned.
#include <algorithm>
#include <numeric>

#include "ops/rules/geometry.h"
#include "ops/rules/layout.h"
#include "ops/rules/promotion.h"
#include "ops/shapes/families.h"
#include "ops/shapes/literal_results.h"
#include "ops/shapes/norm_params.h"

namespace smelt {
namespace {

struct Heads {
  TensorType query, key, value;  // [B, H, T, D]
};

Decision read_heads(const ShapeQuery& q, size_t first, Heads& heads) {
  SymbolTable& s = q.symbols();
  heads = {q.tensor(first), q.tensor(first + 1), q.tensor(first + 2)};
  const TensorType& query = heads.query;
  if (!query.device.is_cuda()) return Decision::forbid("not on CUDA");
  for (const TensorType* type : {&heads.query, &heads.key, &heads.value}) {
    if (type->rank() != 4 || type->dtype != query.dtype || type->device != query.device ||
        !takes(kFloats, type->dtype))
      return Decision::forbid("no rule for these operands");
    if (is_empty(s, type->sizes)) return Decision::forbid("an empty operand");
    if (!equal(s, type->sizes[0], query.sizes[0]))
      return Decision::forbid("the operands differ in size");
  }
  if (!equal(s, heads.key.sizes[3], query.sizes[3]) ||
      !equal(s, heads.key.sizes[2], heads.value.sizes[2]) ||
      !equal(s, heads.key.sizes[1], heads.value.sizes[1]))
    return Decision::forbid("the operands differ in size");
  return Decision::allow();
}

bool same_heads(SymbolTable& s, const Heads& heads) {
  return equal(s, heads.query.sizes[1], heads.key.sizes[1]);
}

// A new tensor like one seen with its second and third dimension exchanged, and seen so again.
TensorType like_exchanged(SymbolTable& s, const TensorType& type) {
  return *transposed(preserved(s, *transposed(type, 1, 2)), 1, 2);
}

// A contiguous tensor of [B, T, H, D], seen as [B, H, T, D].
TensorType made_exchanged(const TensorType& like, Sizes sizes) {
  std::swap(sizes[1], sizes[2]);
  return *transposed(fresh_like(like, std::move(sizes)), 1, 2);
}

// (query, key, value, dropout_p, is_causal, return_debug_mask, scale)
Decision flash(ShapeQuery& q) {
  SymbolTable& s = q.symbols();
  Heads heads;
  if (Decision fit = read_heads(q, 0, heads); !fit) return fit;
  const TensorType& query = heads.query;
  if (!takes(kHalves, query.dtype) || !equal(s, modulo(query.sizes[3], 8), 0) ||
      !equal(s, heads.value.sizes[3], query.sizes[3]))
    return Decision::forbid("flash attention does not take these operands");
  // With fewer heads of keys a single query is computed with its groups in the place of its length.
  if (!same_heads(s, heads) && equal(s, query.sizes[2], 1))
    return Decision::forbid("a single query with groups of heads");
  if (q.boolean(5)) return Decision::forbid("the mask for debugging");
  q.push(like_exchanged(s, query));
  q.push(fresh(DType::f32, query.device, {query.sizes[0], query.sizes[1], query.sizes[2]}));
  q.results.resize(4);
  q.push(fresh(DType::u64, query.device, {2}));
  q.push(fresh(DType::u64, query.device, {}));
  q.push(fresh_like(query, {0}));
  return Decision::allow();
}

// (grad_out, query, key, value, ...)
Decision flash_backward(ShapeQuery& q) {
  SymbolTable& s = q.symbols();
  Heads heads;
  if (Decision fit = read_heads(q, 1, heads); !fit) return fit;
  if (!takes(kHalves, heads.query.dtype) || !equal(s, modulo(heads.query.sizes[3], 8), 0))
    return Decision::forbid("flash attention does not take these operands");
  for (const TensorType* type : {&heads.query, &heads.key, &heads.value})
    q.push(like_exchanged(s, *type));
  return Decision::allow();
}

constexpr int64_t kMostBatches = (1 << 16) - 1;  // more are computed in parts

// (query, key, value, attn_bias, compute_log_sumexp, dropout_p, is_causal, scale)
Decision efficient(ShapeQuery& q) {
  SymbolTable& s = q.symbols();
  Heads heads;
  if (Decision fit = read_heads(q, 0, heads); !fit) return fit;
  const TensorType& query = heads.query;
  if (query.dtype == DType::f64 || !same_heads(s, heads) || less(s, kMostBatches, query.sizes[0]))
    return Decision::forbid("no rule for these operands");
  q.push(made_exchanged(query,
                        {query.sizes[0], query.sizes[1], query.sizes[2], heads.value.sizes[3]}));
  const Size rows = q.boolean(4) ? floor_div(query.sizes[2] + 31, 32) * 32 : Size(0);
  q.push(fresh(DType::f32, query.device, {query.sizes[0], query.sizes[1], rows}));
  const Device state = q.number(5) == 0 ? query.device : Device{};
  for (int i = 0; i < 2; ++i) q.push(fresh(DType::i64, state, {}));
  return Decision::allow();
}

// (grad_out, query, key, value, attn_bias, out, logsumexp, philox_seed, philox_offset, dropout_p,
// grad_input_mask, is_causal, scale)
Decision efficient_backward(ShapeQuery& q) {
  SymbolTable& s = q.symbols();
  Heads heads;
  if (Decision fit = read_heads(q, 1, heads); !fit) return fit;
  if (heads.query.dtype == DType::f64 || !same_heads(s, heads) ||
      less(s, kMostBatches, heads.query.sizes[0]))
    return Decision::forbid("no rule for these operands");
  for (const TensorType* type : {&heads.query, &heads.key, &heads.value})
    q.push(made_exchanged(*type, type->sizes));
  q.results.emplace_back();
  if (q.is_none(4) || !is_wanted(q, 10, 3)) return Decision::allow();
  const TensorType bias = q.tensor(4);
  if (bias.rank() < 1) return Decision::forbid("no rule for this mask");
  Sizes room = bias.sizes;  // rows begin at multiples of 16 elements
  room.back() = floor_div(room.back() + 15, 16) * 16;
  q.results.back() = fresh(bias.dtype, bias.device, bias.sizes, contiguous_strides(room));
  return Decision::allow();
}

// A tensor of these sizes whose dimensions lie in the order of the query's.
TensorType laid_out_as(SymbolTable& s, const TensorType& query, const Sizes& sizes) {
  if (equal(s, query.sizes, sizes)) return preserved(s, query);
  std::vector<int> order(query.rank());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(
      order, [&](int a, int b) { return less(s, query.strides[b], query.strides[a]); });
  Sizes strides(query.rank());
  Size stride = 1;
  for (auto it = order.rbegin(); it != order.rend(); ++it) {
    strides[*it] = stride;
    stride = stride * sizes[*it];
  }
  return fresh(query.dtype, query.device, sizes, strides);
}

// (query, key, value, attn_bias, compute_log_sumexp, dropout_p, is_causal, return_debug_mask,
// scale)
Decision by_cudnn(ShapeQuery& q) {
  SymbolTable& s = q.symbols();
  Heads heads;
  if (Decision fit = read_heads(q, 0, heads); !fit) return fit;
  const TensorType& query = heads.query;
  if (!takes(kHalves, query.dtype)) return Decision::forbid("cuDNN does not take these operands");
  const Sizes &sizes = query.sizes, out = {sizes[0], sizes[1], sizes[2], heads.value.sizes[3]};
  q.push(laid_out_as(s, query, out));
  q.results.emplace_back();
  if (q.boolean(4))
    q.results.back() = fresh(DType::f32, query.device, {sizes[0], sizes[1], sizes[2], 1});
  q.results.resize(4);
  for (int i = 0; i < 2; ++i) q.push(fresh(DType::i64, query.device, {}));
  q.results.emplace_back();
  return Decision::allow();
}

// (grad_out, query, key, value, ...)
Decision by_cudnn_backward(ShapeQuery& q) {
  Heads heads;
  if (Decision fit = read_heads(q, 1, heads); !fit) return fit;
  for (const TensorType* type : {&heads.query, &heads.key, &heads.value})
    q.push(preserved(q.symbols(), *type));
  return Decision::allow();
}

constexpr OpRow kRows[] = {
    {"aten::_scaled_dot_product_cudnn_attention", by_cudnn, {.literals_by_types = true}},
    {"aten::_scaled_dot_product_cudnn_attention_backward",
     by_cudnn_backward,
     {.drawn_from = {6, 7, 13}}},
    {"aten::_scaled_dot_product_efficient_attention", efficient},
    {"aten::_scaled_dot_product_efficient_attention_backward",
     efficient_backward,
     {.drawn_from = {7, 8, 9}}},
    {"aten::_scaled_dot_product_flash_attention", flash, {.literals_by_types = true}},
    {"aten::_scaled_dot_product_flash_attention_backward",
     flash_backward,
     {.drawn_from = {12, 13, 10}}},
};

}  // namespace

std::span<const OpRow> cuda_attention_rows() { return kRows; }

// The lengths of query and key.
std::optional<Sizes> literal_results(OpName op, const ShapeQuery& q) {
  static const OpName kFlash("aten::_scaled_dot_product_flash_attention");
  static const OpName kCudnn("aten::_scaled_dot_product_cudnn_attention");
  if (op != kFlash && op != kCudnn) return std::nullopt;
  if (q.tensor(0).rank() != 4 || q.tensor(1).rank() != 4) return std::nullopt;
  return Sizes{q.tensor(0).sizes[2], q.tensor(1).sizes[2]};
}

}  // namespace smelt
