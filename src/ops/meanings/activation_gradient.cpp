// Gradients of activations and of dropout.
#include <limits>
#include <numbers>

#include "ops/meanings/families.h"
#include "ops/rules/decompose.h"
#include "ops/rules/element.h"

namespace smelt {
namespace {

Expr sigmoid_backward(Expr grad, Expr y) { return grad * (1.0 - y) * y; }
Expr tanh_backward(Expr grad, Expr y) { return grad * (1.0 - y * y); }

Expr silu_backward(Expr grad, Expr x) {
  const Expr s = 1.0 / (1.0 + exp(-x));
  return grad * s * (1.0 + x * (1.0 - s));
}

Expr mish_backward(Expr grad, Expr x) {
  const Expr s = 1.0 / (1.0 + exp(-x));
  const Expr t = tanh(log1p(exp(x)));
  return grad * (t + x * s * (1.0 - t * t));
}

Expr hardsigmoid_backward(Expr grad, Expr x) {
  // A float also where doubles are multiplied: so does torch.
  return select((x > -3.0) & (x < 3.0), grad * static_cast<double>(1.0f / 6.0f), 0.0);
}

Expr hardswish_backward(Expr grad, Expr x) {
  const Expr between = select(x >= 3.0, grad, grad * (x / 3.0 + 0.5));
  return select(x <= -3.0, 0.0, between);
}

// gelu_backward(grad, self, approximate)
Expr gelu_backward(ElementQuery& q) {
  const Expr grad = q.computed(0), x = q.computed(1);
  if (q.text(2) != "tanh") {
    const double beta = std::numbers::inv_sqrtpi / std::numbers::sqrt2;
    const Expr cdf = 0.5 * (1.0 + erf(x * (std::numbers::sqrt2 / 2)));
    const Expr pdf = beta * exp(x * x * -0.5);
    return grad * (cdf + x * pdf);
  }
  const double beta = std::numbers::sqrt2 * std::numbers::inv_sqrtpi, kappa = 0.044715;
  const Expr square = x * x;
  const Expr t = tanh(beta * (x + kappa * (square * x)));
  const Expr left = 0.5 * (1.0 + t);
  const Expr inner = beta * (1.0 + (3 * kappa) * square);
  return grad * (left + 0.5 * x * (1.0 - t * t) * inner);
}

template <class Number>
Expr elu_gradient(Expr grad, Expr x, bool is_result, Number alpha, Number scale,
                  Number input_scale) {
  const Number negative = alpha * scale;
  const Expr scaled = grad * input_scale;
  const Expr below = is_result ? scaled * (x + negative) : scaled * negative * exp(x * input_scale);
  return select(x > 0.0, grad * scale, below);
}

// elu_backward(grad, alpha, scale, input_scale, is_result, self_or_result)
Expr elu_backward(ElementQuery& q) {
  const Expr grad = q.computed(0), x = q.computed(5);
  if (q.is_tensor(1) || q.is_tensor(2) || q.is_tensor(3))
    return elu_gradient(grad, x, q.boolean(4), q.operand(1), q.operand(2), q.operand(3));
  return elu_gradient(grad, x, q.boolean(4), q.number(1), q.number(2), q.number(3));
}

// What the op gave says what it was given only where the slope is not negative: PyTorch checks.
template <size_t is_result>
Decision needs_no_result(const NodeReader& q) {
  for (size_t i = 1; i < q.size(); ++i)
    if (is_unknown_number(q, i) && q.boolean(is_result))
      return Decision::forbid("a slope that may be negative");
  return Decision::allow();
}

// leaky_relu_backward(grad, self, slope, self_is_result)
Expr leaky_relu_backward(ElementQuery& q) {
  const Expr grad = q.computed(0);
  return select(q.computed(1) > 0.0, grad, grad * q.operand(2));
}

// threshold_backward(grad, self, threshold)
Expr threshold_backward(ElementQuery& q) {
  return select(q.computed(1) <= q.operand(2), 0.0, q.computed(0));
}

// hardtanh_backward(grad, self, min, max)
Expr hardtanh_backward(ElementQuery& q) {
  const Expr x = q.computed(1);
  return select((x > q.operand(2)) & (x < q.operand(3)), q.computed(0), 0.0);
}

// softplus_backward(grad, self, beta, threshold)
Expr softplus_backward(ElementQuery& q) {
  const Expr grad = q.computed(0), scaled = q.computed(1) * q.operand(2);
  const Expr z = exp(scaled);
  return select(scaled > q.operand(3), grad, grad * z / (z + 1.0));
}

// hardshrink_backward, softshrink_backward(grad, self, lambda)
Expr shrink_backward(ElementQuery& q) {
  const Expr x = q.computed(1), bound = q.operand(2);
  return select((x < -bound) | (x > bound), q.computed(0), 0.0);
}

// logit_backward(grad, self, eps)
Expr logit_backward(ElementQuery& q) {
  const Expr grad = q.computed(0), x = q.computed(1);
  const double eps = q.number(2, -1);
  const Expr inside =
      select((x == 0.0) | (x == 1.0), grad * std::numeric_limits<double>::infinity(),
             grad / (x * (1.0 - x)));
  if (eps < 0) {
    return select((x < 0.0) | (x > 1.0), std::numeric_limits<double>::quiet_NaN(), inside);
  }
  return select((x < eps) | (x > 1 - eps), 0.0, inside);
}

// native_dropout_backward(grad, mask, scale)
Expr dropout_backward(ElementQuery& q) {
  return q.computed(0) * q.operand(1).to(q.compute_dtype()) * q.number(2);
}

// glu_backward(grad, self, dim): the gradients of the two halves stand one after the other.
Expr glu_backward(ElementQuery& q) {
  const TensorType& self = q.type(1);
  const int dim = dim_of(q.integer(2), self.rank());
  const DType dtype = accumulate_of(self.dtype);
  const Size half = q.type(0).sizes[dim];
  Indices first = q.at();
  first[dim] = remainder(q.at()[dim], half, q.extents());
  Indices second = first;
  second[dim] = first[dim] + Index(half);
  const Expr grad = q.load(q.value(0), first).to(dtype), x = q.load(q.value(1), first).to(dtype);
  const Expr gate = 1.0 / (1.0 + exp(-q.load(q.value(1), second).to(dtype)));
  const Expr of_gate = (1.0 - gate) * gate * x * grad;
  return select(is_below(q, q.at()[dim], half), gate * grad, of_gate);
}

// Eager broadcasts other gradients; nobody has them.
Decision allows_glu_backward(const NodeReader& q) {
  Sizes doubled = q.type(0).sizes;
  const int dim = dim_of(q.integer(2), q.type(1).rank());
  if (doubled.size() != q.type(1).sizes.size()) return Decision::forbid("the gradient broadcasts");
  doubled[dim] = doubled[dim] * 2;
  return doubled == q.type(1).sizes ? Decision::allow()
                                    : Decision::forbid("the gradient broadcasts");
}

// The gradient of log(sigmoid(x)) is sigmoid(-x); what the forward kept for it is not needed.
bool log_sigmoid_backward(DecomposeQuery& q) {
  const Term grad = wide_argument(q, 0), x = wide_argument(q, 1);
  give(q, 0, grad * write(q, "aten::sigmoid", {(-x).ref()}));
  return true;
}

// _prelu_kernel_backward(grad, self, weight): two results of the sizes of self.
bool prelu_backward(DecomposeQuery& q) {
  const Term grad = argument(q, 0), self = argument(q, 1), weight = argument(q, 2);
  const Term positive = greater_than(self, 0);
  if (is_wanted(q, 0)) give(q, 0, select(positive, grad, weight * grad));
  if (is_wanted(q, 1)) give(q, 1, fill_where(self * grad, positive, 0.0));
  return true;
}

constexpr Meaning kRows[] = {
    pointwise("aten::sigmoid_backward", 2, binary<sigmoid_backward>),
    pointwise("aten::tanh_backward", 2, binary<tanh_backward>),
    pointwise("aten::silu_backward", 2, binary<silu_backward>, kTranscendental),
    pointwise("aten::mish_backward", 2, binary<mish_backward>, 2 * kCompound),
    pointwise("aten::hardsigmoid_backward", 2, binary<hardsigmoid_backward>),
    pointwise("aten::hardswish_backward", 2, binary<hardswish_backward>, kDivides),
    pointwise("aten::gelu_backward", 2, gelu_backward, 2 * kCompound),
    with_numbers(
        pointwise("aten::elu_backward", 0, elu_backward, kTranscendental, needs_no_result<4>),
        {1, 2, 3}),
    with_numbers(
        pointwise("aten::leaky_relu_backward", 2, leaky_relu_backward, kCheap, needs_no_result<3>),
        {2}),
    with_numbers(pointwise("aten::threshold_backward", 2, threshold_backward), {2}),
    with_numbers(pointwise("aten::hardtanh_backward", 2, hardtanh_backward), {2, 3}),
    with_numbers(pointwise("aten::softplus_backward", 2, softplus_backward, kTranscendental),
                 {2, 3}),
    with_numbers(pointwise("aten::hardshrink_backward", 2, shrink_backward), {2}),
    pointwise("aten::softshrink_backward", 2, shrink_backward),
    pointwise("aten::logit_backward", 2, logit_backward, kDivides),
    pointwise("aten::native_dropout_backward", 0, dropout_backward),
    elsewhere(Pattern::gather, "aten::glu_backward", glu_backward, allows_glu_backward,
              kTranscendental),
    {.name = "aten::log_sigmoid_backward", .decompose = log_sigmoid_backward},
    {.name = "aten::_prelu_kernel_backward", .decompose = prelu_backward},
};

}  // namespace

std::span<const Meaning> activation_gradient_meanings() { return kRows; }

}  // namespace smelt
