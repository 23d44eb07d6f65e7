// Activations, their gradients, and dropout's.
#include "ops/rules/elementwise.h"
#include "ops/rules/layout.h"
#include "ops/shapes/families.h"

namespace smelt {
namespace {

Decision celu(ShapeQuery& q) {
  if (q.number(1) == 0) return Decision::forbid("alpha is 0");
  return unary<keeps(kFloats)>(q);
}

Decision softshrink(ShapeQuery& q) {
  if (!(q.number(1) >= 0 && q.number(1) <= 65504))
    return Decision::forbid("lambda is negative or large");
  return unary<keeps(kFloats)>(q);
}

bool is_approximation(std::string_view text) { return text == "none" || text == "tanh"; }

Decision gelu(ShapeQuery& q) {
  if (!is_approximation(q.text(1))) return Decision::forbid("gelu knows no such approximation");
  return unary<keeps(kFloats)>(q);
}

Decision gelu_backward(ShapeQuery& q) {
  if (!is_approximation(q.text(2))) return Decision::forbid("gelu knows no such approximation");
  // oneDNN computes this one and neither promotes nor broadcasts.
  const TensorType grad = q.tensor(0), self = q.tensor(1);
  if (grad.dtype != self.dtype || !equal(q.symbols(), grad.sizes, self.sizes)) {
    return Decision::forbid("the operands differ in dtype or sizes");
  }
  return binary<promotes(kFloats)>(q);
}

Decision elu_backward(ShapeQuery& q) {
  if (q.boolean(4) && q.number(1) < 0) return Decision::forbid("alpha is negative");
  return over<promotes(kFloats), 0, 5>(q);
}

Decision leaky_relu_backward(ShapeQuery& q) {
  if (q.boolean(3) && q.number(2) < 0) return Decision::forbid("the slope is negative");
  return over<promotes(kFloats), 1, 0>(q);
}

// rrelu_with_noise_functional(self, noise, lower, upper, training, generator): and the noise drawn.
Decision rrelu(ShapeQuery& q) {
  const TensorType self = q.tensor(0), noise = q.tensor(1);
  if (!takes(kFloats, self.dtype) || noise.dtype != self.dtype || noise.device != self.device ||
      !equal(q.symbols(), self.sizes, noise.sizes))
    return Decision::forbid("no rule for these operands");
  q.push(fresh_like(self, self.sizes));
  q.push(preserved(q.symbols(), noise));
  return Decision::allow();
}

// (grad_output, self, noise, lower, upper, training, self_is_result): a product with the noise, or
// what leaky_relu does.
Decision rrelu_backward(ShapeQuery& q) {
  if (q.boolean(5)) return over<promotes(kFloats), 2, 0>(q);
  if (q.boolean(6)) return Decision::forbid("no rule for the gradient by the result");
  return over<promotes(kFloats), 1, 0>(q);
}

Decision mish_backward(ShapeQuery& q) {
  if (q.tensor(0).dtype != q.tensor(1).dtype)
    return Decision::forbid("the operands differ in dtype");
  return binary<promotes(kFloats)>(q);
}

Decision hardtanh(ShapeQuery& q) {
  const TensorType self = q.tensor(0);
  if (!takes(kNumbers, self.dtype) || self.dtype == DType::u8)
    return Decision::forbid("no rule for this dtype");
  q.push(preserved(q.symbols(), self));
  return Decision::allow();
}

Decision log_sigmoid(ShapeQuery& q) {
  const TensorType self = q.tensor(0);
  if (!takes(kFloats, self.dtype)) return Decision::forbid("no rule for this dtype");
  if (self.device.is_cpu()) {
    q.push(fresh_like(self, self.sizes));
    q.push(fresh_like(self, self.sizes));
  } else {
    q.push(preserved(q.symbols(), self));
    q.push(fresh_like(self, {0}));
  }
  return Decision::allow();
}

// Written into an empty_like of the gradient.
Decision log_sigmoid_backward(ShapeQuery& q) {
  const TensorType grad = q.tensor(0), self = q.tensor(1), buffer = q.tensor(2);
  if (!takes(kFloats, grad.dtype) || grad.dtype != self.dtype || buffer.dtype != self.dtype) {
    return Decision::forbid("no rule for these dtypes");
  }
  if (!equal(q.symbols(), grad.sizes, self.sizes))
    return Decision::forbid("the gradient has other sizes");
  if (self.device.is_cpu() && !equal(q.symbols(), buffer.sizes, self.sizes)) {
    return Decision::forbid("the buffer has other sizes");
  }
  q.push(preserved(q.symbols(), grad));
  return Decision::allow();
}

// The first half of `self` along the dimension; nothing where it has none.
std::optional<TensorType> first_half(const ShapeQuery& q, TensorType self, size_t dim_arg) {
  const std::optional<int> dim = wrap_dim(q.integer(dim_arg), self.rank());
  if (self.rank() == 0 || !dim) return std::nullopt;
  Size& size = self.sizes[*dim];
  if (!equal(q.symbols(), modulo(size, 2), 0)) return std::nullopt;
  size = floor_div(size, 2);
  return self;
}

Decision glu(ShapeQuery& q) {
  std::optional<TensorType> half = first_half(q, q.tensor(0), 1);
  if (!half) return Decision::forbid("the dimension cannot be halved");
  Iterated it{{*half, *half}, {}};
  if (Decision made = iterate(q, {.takes = kFloats}, it); !made) return made;
  q.push(std::move(it.result));
  return Decision::allow();
}

Decision glu_backward(ShapeQuery& q) {
  const TensorType grad = q.tensor(0), self = q.tensor(1);
  const std::optional<TensorType> half = first_half(q, self, 2);
  if (!half || !equal(q.symbols(), half->sizes, grad.sizes)) {
    return Decision::forbid("the gradient is not half of the input");
  }
  if (!takes(kFloats, self.dtype) || grad.dtype != self.dtype)
    return Decision::forbid("no rule for these dtypes");
  q.push(fresh_like(self, self.sizes));
  return Decision::allow();
}

Decision prelu(ShapeQuery& q) {
  const TensorType self = q.tensor(0), weight = q.tensor(1);
  if (!takes(kFloats, self.dtype) || weight.dtype != self.dtype)
    return Decision::forbid("no rule for these dtypes");
  if (!expandable(q.symbols(), weight.sizes, self.sizes))
    return Decision::forbid("the weight does not broadcast");
  q.push(preserved(q.symbols(), self));
  return Decision::allow();
}

Decision prelu_backward(ShapeQuery& q) {
  if (q.tensor(2).dtype != q.tensor(1).dtype)
    return Decision::forbid("the operands differ in dtype");
  if (Decision made = over<keeps(kFloats), 1, 2, 0>(q); !made) return made;
  q.push(*q.results[0]);
  return Decision::allow();
}

// grad * mask * scale on the CPU; a kernel with a layout of its own elsewhere.
Decision dropout_backward(ShapeQuery& q) {
  SymbolTable& s = q.symbols();
  const TensorType grad = q.tensor(0), mask = q.tensor(1);
  if (mask.dtype != DType::b8) return Decision::forbid("the mask is no bool tensor");
  if (!equal(s, grad.sizes, mask.sizes)) return Decision::forbid("the mask has other sizes");
  if (!grad.device.is_cpu()) {
    if (!takes(kFloats, grad.dtype) || mask.device != grad.device)
      return Decision::forbid("no rule for these operands");
    q.push(fresh(grad.dtype, grad.device, grad.sizes,
                 *format_strides(grad.sizes, suggested_format(s, grad))));
    return Decision::allow();
  }
  if (Decision made = binary<promotes(kFloats)>(q); !made) return made;
  Iterated it{{*q.results[0], q.tensor(2)}, {}};
  if (Decision made = iterate(q, {}, it); !made) return made;
  q.results[0] = std::move(it.result);
  return Decision::allow();
}

constexpr OpRow kRows[] = {
    {"aten::_prelu_kernel", prelu},
    {"aten::_prelu_kernel_backward", prelu_backward},
    {"aten::celu", celu},
    {"aten::elu", unary<keeps(kFloats)>},
    {"aten::elu_backward", elu_backward},
    {"aten::gelu", gelu},
    {"aten::gelu_backward", gelu_backward},
    {"aten::glu", glu},
    {"aten::glu_backward", glu_backward},
    {"aten::hardshrink", unary<keeps(kFloats)>},
    {"aten::hardshrink_backward", binary<promotes(kFloats)>},
    {"aten::hardsigmoid", unary<keeps(kFloats)>},
    {"aten::hardsigmoid_backward", binary<promotes(kFloats)>},
    {"aten::hardswish", unary<keeps(kFloats)>},
    {"aten::hardswish_backward", binary<promotes(kFloats)>},
    {"aten::hardtanh", hardtanh},
    {"aten::hardtanh_backward", binary<promotes(kFloats)>},
    {"aten::leaky_relu", unary<keeps(kFloats)>},
    {"aten::leaky_relu_backward", leaky_relu_backward},
    {"aten::log_sigmoid_backward", log_sigmoid_backward},
    {"aten::log_sigmoid_forward", log_sigmoid},
    {"aten::logit_backward", binary<promotes(kFloats)>},
    {"aten::mish", unary<keeps(kFloats)>},
    {"aten::mish_backward", mish_backward},
    {"aten::native_dropout_backward", dropout_backward},
    {"aten::relu", unary<keeps(kNumbers)>},
    {"aten::rrelu_with_noise_backward", rrelu_backward},
    {"aten::rrelu_with_noise_functional", rrelu},
    {"aten::sigmoid_backward", binary<promotes(kDifferentiable)>},
    {"aten::silu", unary<keeps(kDifferentiable)>},
    {"aten::silu_backward", binary<promotes(kDifferentiable)>},
    {"aten::softplus", unary<keeps(kFloats)>},
    {"aten::softplus_backward", binary<promotes(kFloats)>},
    {"aten::softshrink", softshrink},
    {"aten::softshrink_backward", binary<promotes(kFloats)>},
    {"aten::tanh_backward", binary<promotes(kDifferentiable)>},
    {"aten::threshold", unary<promotes(kNumbers)>},
    {"aten::threshold_backward", over<promotes(kNumbers), 1, 0>},
};

}  // namespace

std::span<const OpRow> activation_rows() { return kRows; }

}  // namespace smelt
