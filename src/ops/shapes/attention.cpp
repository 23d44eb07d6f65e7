// Scaled dot product attention on the CPU, and what PyTorch computes as one op there: a layer of an
// encoder, of attention, of an LSTM. cuda_attention.cpp has the kernels of CUDA.
#include "ops/rules/geometry.h"
#include "ops/rules/layout.h"
#include "ops/rules/promotion.h"
#include "ops/shapes/families.h"
#include "ops/shapes/library_results.h"

namespace smelt {
namespace {

// Query [B, H, Tq, D], key and value [B, G, Tk, D], one dtype; a head of these serves H / G heads of the query.
Decision check_heads(const ShapeQuery& q, const TensorType& query, const TensorType& key,
                     const TensorType& value) {
  SymbolTable& s = q.symbols();
  if (!query.device.is_cpu()) return Decision::forbid("not on the CPU");
  for (const TensorType* type : {&query, &key, &value}) {
    const bool fits =
        type->rank() == 4 && type->dtype == query.dtype && type->device == query.device;
    if (!fits || !takes(kFloats, type->dtype))
      return Decision::forbid("no rule for these operands");
    if (is_empty(s, type->sizes)) return Decision::forbid("an empty operand");
    for (int d : {0, 3}) {
      if (!equal(s, type->sizes[d], query.sizes[d]))
        return Decision::forbid("the operands differ in size");
    }
  }
  if (!equal(s, key.sizes[1], value.sizes[1]))
    return Decision::forbid("key and value differ in heads");
  if (!equal(s, key.sizes[1], query.sizes[1]) && !equal(s, modulo(query.sizes[1], key.sizes[1]), 0))
    return Decision::forbid("the heads can't be shared evenly");
  if (!equal(s, key.sizes[2], value.sizes[2]))
    return Decision::forbid("key and value differ in length");
  return Decision::allow();
}

Decision check_mask(const ShapeQuery& q, const TensorType& query, const TensorType& key,
                    size_t arg) {
  if (q.is_none(arg)) return Decision::allow();
  const TensorType mask = q.tensor(arg);
  const Sizes sizes = {query.sizes[0], query.sizes[1], query.sizes[2], key.sizes[2]};
  const bool fits = (mask.rank() == 2 || mask.rank() == 4) && mask.dtype == query.dtype;
  if (!fits || !expandable(q.symbols(), mask.sizes, sizes))
    return Decision::forbid("the mask does not fit");
  return Decision::allow();
}

// A tensor made with the second and third dimension exchanged.
TensorType made_transposed(DType dtype, Sizes sizes) {
  std::swap(sizes[1], sizes[2]);
  return *transposed(fresh(dtype, Device{}, std::move(sizes)), 1, 2);
}

// (query, key, value, dropout_p, is_causal, attn_mask, scale)
Decision flash_attention(ShapeQuery& q) {
  const TensorType query = q.tensor(0), key = q.tensor(1);
  if (Decision fit = check_heads(q, query, key, q.tensor(2)); !fit) return fit;
  if (q.number(3) != 0) return Decision::forbid("dropout in the CPU kernel");
  if (Decision fit = check_mask(q, query, key, 5); !fit) return fit;
  q.push(preserved(q.symbols(), query));
  const TensorType sums =
      fresh(accumulate_of(query.dtype), Device{}, {query.sizes[0], query.sizes[2], query.sizes[1]});
  q.push(*transposed(sums, 1, 2));
  return Decision::allow();
}

// (grad_out, query, key, value, out, logsumexp, dropout_p, is_causal, attn_mask, scale)
Decision flash_attention_backward(ShapeQuery& q) {
  const TensorType grad = q.tensor(0), query = q.tensor(1), key = q.tensor(2), value = q.tensor(3);
  if (Decision fit = check_heads(q, query, key, value); !fit) return fit;
  if (Decision fit = check_mask(q, query, key, 8); !fit) return fit;
  if (grad.dtype != query.dtype || !equal(q.symbols(), grad.sizes, query.sizes)) {
    return Decision::forbid("the gradient does not fit");
  }
  for (const TensorType* type : {&query, &key, &value})
    q.push(made_transposed(type->dtype, type->sizes));
  return Decision::allow();
}

// _transformer_encoder_layer_fwd(src, ...): a whole layer in one op, without gradients.
Decision encoder_layer(ShapeQuery& q) {
  const TensorType source = q.tensor(0);
  if (!source.device.is_cpu() || source.rank() != 3 || !takes(kFloats, source.dtype)) {
    return Decision::forbid("no rule for this input");
  }
  q.push(fresh_like(source, source.sizes));
  return Decision::allow();
}

// _native_multi_head_attention(query, key, value, embed_dim, num_head, qkv_weight, qkv_bias,
// proj_weight, proj_bias, mask, need_weights, average_attn_weights, mask_type)
Decision attention_layer(ShapeQuery& q) {
  SymbolTable& s = q.symbols();
  const TensorType query = q.tensor(0);
  for (size_t i : {0, 1, 2}) {
    const TensorType type = q.tensor(i);
    if (!type.device.is_cpu() || type.rank() != 3 || type.dtype != query.dtype ||
        !takes(kFloats, type.dtype) || !equal(s, type.sizes, query.sizes))
      return Decision::forbid("no rule for these operands");
  }
  const Size width = q.size_at(3), heads = q.size_at(4);
  if (!equal(s, query.sizes[2], width) || !less(s, 0, heads) || !equal(s, modulo(width, heads), 0))
    return Decision::forbid("the heads do not fit");
  if (is_empty(s, query.sizes)) return Decision::forbid("an empty operand");
  q.push(fresh_like(query, query.sizes));
  Sizes weights = {query.sizes[0], query.sizes[1], query.sizes[1]};
  if (!q.boolean(11)) weights.insert(weights.begin() + 1, heads);
  if (q.boolean(10))
    q.push(fresh_like(query, std::move(weights)));
  else
    q.results.emplace_back();
  return Decision::allow();
}

// A layer of oneDNN's LSTM, whose weights and sizes begin at argument 1 and at `mode`.
Decision is_lstm_layer(ShapeQuery& q, size_t mode) {
  const TensorType input = q.tensor(0);
  if (!input.device.is_cpu() || input.rank() != 3 || !takes(kFloats, input.dtype))
    return Decision::forbid("no rule for this input");
  constexpr int64_t kLstm = 2;  // of at::native's modes
  if (q.integer(mode) != kLstm || q.integer(mode + 1) <= 0)
    return Decision::forbid("not an LSTM layer");
  SymbolTable& s = q.symbols();
  const Size hidden = q.size_at(mode + 1), gates = hidden * 4;
  const TensorType from_input = q.tensor(1), from_state = q.tensor(2);
  const bool fits = from_input.rank() == 2 && from_state.rank() == 2 &&
                    equal(s, from_input.sizes, Sizes{gates, input.sizes[2]}) &&
                    equal(s, from_state.sizes, Sizes{gates, hidden});
  return fits ? Decision::allow() : Decision::forbid("the weights do not fit");
}

// mkldnn_rnn_layer_backward(input, weight1, .., weight4, hx_, cx_tmp, ...): a gradient of each of
// these.
Decision lstm_layer_backward(ShapeQuery& q) {
  if (const Decision made = is_lstm_layer(q, 14); !made) return made;
  for (int i = 0; i < 7; ++i) {
    TensorType type = q.tensor(i);
    if (takes(kHalves, type.dtype)) type.dtype = DType::f32;
    q.push(fresh_like(type, type.sizes));
  }
  return Decision::allow();
}

constexpr OpRow kRows[] = {
    {"aten::_native_multi_head_attention", attention_layer},
    {"aten::_scaled_dot_product_flash_attention_for_cpu", flash_attention},
    {"aten::_scaled_dot_product_flash_attention_for_cpu_backward", flash_attention_backward},
    {"aten::_transformer_encoder_layer_fwd", encoder_layer},
    {"aten::mkldnn_rnn_layer_backward", lstm_layer_backward},
};

}  // namespace

// mkldnn_rnn_layer(input, weight0, .., weight3, hx_, cx_, reverse, batch_sizes, mode, hidden_size,
// ...), time first: output, hy and cy.
Decision library_results(ShapeQuery& q) {
  constexpr size_t kMode = 9;
  if (const Decision made = is_lstm_layer(q, kMode); !made) return made;
  const TensorType input = q.tensor(0), h = q.tensor(5), c = q.tensor(6);
  q.push(fresh_like(input, {input.sizes[0], input.sizes[1], q.size_at(kMode + 1)}));
  q.push(fresh_like(h, h.sizes));
  q.push(fresh_like(c, c.sizes));
  TensorType kept = fresh_like(input, {Size(0)});
  kept.dtype = DType::u8;
  q.push(kept);
  return Decision::allow();
}

std::span<const OpRow> attention_rows() { return kRows; }

}  // namespace smelt
