// Activations: one element each, glu two halves of a dimension.
#include <numbers>

#include "ops/meanings/families.h"
#include "ops/rules/decompose.h"
#include "ops/rules/element.h"

namespace smelt {
namespace {

Expr relu(Expr x) { return max(x, 0.0); }

// gelu(self, approximate)
Expr gelu(ElementQuery& q) {
  const Expr x = q.computed(0);
  if (q.text(1) != "tanh") return x * 0.5 * (1.0 + erf(x * (std::numbers::sqrt2 / 2)));
  const double beta = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
  const Expr inner = beta * (x + 0.044715 * (x * x * x));
  return 0.5 * x * (1.0 + tanh(inner));
}

Expr silu(Expr x) { return x / (1.0 + exp(-x)); }
Expr mish(Expr x) { return x * tanh(log1p(exp(x))); }
Expr hardsigmoid(Expr x) { return min(max(x + 3.0, 0.0), 6.0) / 6.0; }
Expr hardswish(Expr x) { return x * min(max(x + 3.0, 0.0), 6.0) / 6.0; }

template <class Number>
Expr elu_of(Expr x, Number alpha, Number scale, Number input_scale) {
  return select(x < 0.0, expm1(x * input_scale) * (alpha * scale), x * scale);
}

// elu(self, alpha, scale, input_scale)
Expr elu(ElementQuery& q) {
  const Expr x = q.computed(0);
  if (q.is_tensor(1) || q.is_tensor(2) || q.is_tensor(3))
    return elu_of(x, q.operand(1), q.operand(2), q.operand(3));
  return elu_of(x, q.number(1), q.number(2), q.number(3));
}

Expr celu(ElementQuery& q) { return elu_of(q.computed(0), q.number(1), 1.0, 1 / q.number(1)); }

Expr leaky_relu(ElementQuery& q) {
  const Expr x = q.computed(0);
  return select(x > 0.0, x, x * q.operand(1));
}

Expr prelu(ElementQuery& q) {
  const Expr x = q.computed(0);
  return select(x > 0.0, x, q.computed(1) * x);
}

// hardtanh(self, min, max): the bounds take the dtype of the tensor.
Expr hardtanh(ElementQuery& q) { return min(max(q.computed(0), q.operand(1)), q.operand(2)); }

// softplus(self, beta, threshold)
Expr softplus(ElementQuery& q) {
  const Expr x = q.computed(0);
  const Expr beta = q.operand(1);
  const Expr scaled = x * beta;
  return select(scaled > q.operand(2), x, log1p(exp(scaled)) / beta);
}

// threshold(self, threshold, value)
Expr threshold(ElementQuery& q) {
  const Expr x = q.computed(0);
  return select(x <= q.operand(1), q.operand(2), x);
}

Expr hardshrink(ElementQuery& q) {
  const Expr x = q.computed(0), bound = q.rounded(1);
  return select((x >= -bound) & (x <= bound), 0.0, x);
}

Expr softshrink(ElementQuery& q) {
  const Expr x = q.computed(0);
  const double bound = q.number(1);
  const Expr inside = as_eager_loops(q, select(is_nan(x), x, x.like(0)), x * 0.0);
  return select(x > bound, x - bound, select(x < -bound, x + bound, inside));
}

// glu(self, dim): the first half by the sigmoid of the second.
Expr glu(ElementQuery& q) {
  const TensorType& self = q.type(0);
  const int dim = dim_of(q.integer(1), self.rank());
  const DType dtype = accumulate_of(self.dtype);
  Indices second = q.at();
  second[dim] = second[dim] + Index(q.result().sizes[dim]);
  const Expr gate = q.load(q.value(0), second).to(dtype);
  return q.load(q.value(0), q.at()).to(dtype) * (1.0 / (1.0 + exp(-gate)));
}

// log_sigmoid_forward(self): the second result is what the CPU keeps for the gradient.
bool log_sigmoid(DecomposeQuery& q) {
  if (is_wanted(q, 1) && !(q.result(1).sizes == q.type(0).sizes)) return false;
  const Term x = wide_argument(q, 0);
  const Term kept = exp(-abs(x));
  const Term lesser = write(q, "aten::clamp_max", {x.ref(), 0});
  give(q, 0, lesser - write(q, "aten::log1p", {kept.ref()}));
  give(q, 1, kept);
  return true;
}

constexpr Meaning kRows[] = {
    pointwise("aten::relu", 1, unary<relu>),
    pointwise("aten::gelu", 1, gelu, kCompound),
    pointwise("aten::silu", 1, unary<silu>, kTranscendental),
    pointwise("aten::mish", 1, unary<mish>, 2 * kCompound),
    {.name = "aten::log_sigmoid_forward", .decompose = log_sigmoid},
    pointwise("aten::hardsigmoid", 1, unary<hardsigmoid>, kDivides),
    pointwise("aten::hardswish", 1, unary<hardswish>, kDivides),
    with_numbers(pointwise("aten::elu", 1, elu, kTranscendental), {1, 2, 3}),
    pointwise("aten::celu", 1, celu, kTranscendental),
    with_numbers(pointwise("aten::leaky_relu", 1, leaky_relu), {1}),
    pointwise("aten::_prelu_kernel", 2, prelu),
    with_numbers(pointwise("aten::hardtanh", 1, hardtanh), {1, 2}),
    with_numbers(pointwise("aten::softplus", 1, softplus, kCompound), {1, 2}),
    with_numbers(pointwise("aten::threshold", 1, threshold), {1, 2}),
    with_numbers(pointwise("aten::hardshrink", 1, hardshrink), {1}),
    pointwise("aten::softshrink", 1, softshrink),
    elsewhere(Pattern::gather, "aten::glu", glu, nullptr, kTranscendental),
};

}  // namespace

std::span<const Meaning> activation_meanings() { return kRows; }

}  // namespace smelt
