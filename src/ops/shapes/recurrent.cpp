// One step of an LSTM or GRU, which CUDA computes in one kernel behind the products.
#include "ops/rules/layout.h"
#include "ops/rules/promotion.h"
#include "ops/shapes/families.h"

namespace smelt {
namespace {

// The gates of a step: [B, factor * hidden], with the state [B, hidden].
Decision check_gates(const ShapeQuery& q, size_t gates, size_t state, int64_t factor) {
  SymbolTable& s = q.symbols();
  const TensorType all = q.tensor(gates), one = q.tensor(state);
  if (!all.device.is_cuda() || all.rank() != 2 || one.rank() != 2 || all.dtype != one.dtype ||
      !takes(kFloats, all.dtype) || !equal(s, all.sizes[0], one.sizes[0]) ||
      !equal(s, all.sizes[1], one.sizes[1] * factor))
    return Decision::forbid("no rule for these gates");
  return Decision::allow();
}

TensorType contiguous_like(const TensorType& type) { return fresh_like(type, type.sizes); }

// _thnn_fused_lstm_cell(input_gates, hidden_gates, cx, input_bias, hidden_bias)
Decision lstm_cell(ShapeQuery& q) {
  if (Decision fit = check_gates(q, 0, 2, 4); !fit) return fit;
  for (size_t i : {2, 2, 0}) q.push(contiguous_like(q.tensor(i)));
  return Decision::allow();
}

// _thnn_fused_lstm_cell_backward_impl(grad_hy, grad_cy, cx, cy, workspace, has_bias)
Decision lstm_cell_backward(ShapeQuery& q) {
  if (q.is_none(0) && q.is_none(1)) return Decision::forbid("there is no gradient");
  if (Decision fit = check_gates(q, 4, 2, 4); !fit) return fit;
  const TensorType workspace = q.tensor(4);
  q.push(contiguous_like(workspace));
  q.push(contiguous_like(q.tensor(2)));
  q.results.emplace_back();
  if (q.boolean(5)) q.results.back() = fresh_like(workspace, {workspace.sizes[1]});
  return Decision::allow();
}

constexpr int64_t kKeptByGru = 5;

// _thnn_fused_gru_cell(input_gates, hidden_gates, hx, input_bias, hidden_bias)
Decision gru_cell(ShapeQuery& q) {
  if (Decision fit = check_gates(q, 0, 2, 3); !fit) return fit;
  const TensorType state = q.tensor(2);
  q.push(contiguous_like(state));
  q.push(fresh_like(state, {state.sizes[0], state.sizes[1] * kKeptByGru}));
  return Decision::allow();
}

// _thnn_fused_gru_cell_backward(grad_hy, workspace, has_bias)
Decision gru_cell_backward(ShapeQuery& q) {
  if (Decision fit = check_gates(q, 1, 0, kKeptByGru); !fit) return fit;
  const TensorType grad = q.tensor(0), workspace = q.tensor(1);
  const Size width = grad.sizes[1] * 3;
  for (int i = 0; i < 2; ++i) q.push(fresh_like(workspace, {workspace.sizes[0], width}));
  q.push(contiguous_like(grad));
  for (int i = 0; i < 2; ++i) {
    q.results.emplace_back();
    if (q.boolean(2)) q.results.back() = fresh_like(workspace, {width});
  }
  return Decision::allow();
}

constexpr OpRow kRows[] = {
    {"aten::_thnn_fused_gru_cell", gru_cell},
    {"aten::_thnn_fused_gru_cell_backward", gru_cell_backward},
    {"aten::_thnn_fused_lstm_cell", lstm_cell},
    {"aten::_thnn_fused_lstm_cell_backward_impl", lstm_cell_backward},
};

}  // namespace

std::span<const OpRow> recurrent_rows() { return kRows; }

}  // namespace smelt
