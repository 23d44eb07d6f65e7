// The steps of the fused optimizers, tensor by tensor, in the order of operations of ATen's
// kernels: what depends on the step alone is computed in f64 and rounded once.
//
// All take lists of parameters, gradients and state, and give them back changed; the gradients only
// where they are scaled, which is left to the kernel, as are steps that may be skipped (found_inf).
#include <cmath>

#include "ops/decompositions/families.h"
#include "ops/rules/decompose.h"
#include "ops/rules/not_literal.h"
#include "ops/rules/promotion.h"

namespace smelt {
namespace {

// A number, or a tensor of one element, as an f64.
struct Rate {
  double number = 0;
  Term tensor = {};  // q is null: the number counts

  Arg arg() const { return tensor.q ? Arg(tensor.ref()) : Arg(number); }
};

Rate rate_at(DecomposeQuery& q, size_t i) {
  if (q.is_tensor(i) && q.type(i).wrapped_number)
    throw NotLiteral("a rate that is a number known only when the graph runs");
  if (q.is_tensor(i)) return {.tensor = argument_as(q, i, DType::f64)};
  return {.number = q.number(i)};
}

Term item(DecomposeQuery& q, size_t list, size_t i) { return {&q, q.values(list)[i]}; }
Term wide_item(DecomposeQuery& q, size_t list, size_t i) {
  const Term one = item(q, list, i);
  return cast(one, accumulate_of(one.type().dtype));
}

// The lists of tensors have one length, tensors of one place one dtype and the same sizes.
bool lists_fit(const DecomposeQuery& q, std::initializer_list<size_t> lists, Kinds kinds) {
  const std::vector<ValueId> first = q.values(*lists.begin());
  for (size_t list : lists) {
    const std::vector<ValueId> tensors = q.values(list);
    if (tensors.size() != first.size()) return false;
    for (size_t i = 0; i < first.size(); ++i) {
      const TensorType &a = q.type_of(first[i]), &b = q.type_of(tensors[i]);
      if (!takes(kinds, a.dtype) || a.dtype != b.dtype || a.sizes != b.sizes) return false;
    }
  }
  return true;
}

struct Adam {
  bool decoupled = false;  // AdamW: the decay does not go through the moments
  Rate lr;
  double beta1 = 0, beta2 = 0, decay = 0, eps = 0;
  bool amsgrad = false, maximize = false;
};

// 1 - beta ** step, in f64
Term bias_correction(DecomposeQuery& q, double beta, Term step) {
  return 1.0 - write(q, "aten::pow.Scalar", {beta, step.ref()});
}

// a + weight * (b - a), from the end that is nearer
Term moved(Term a, Term b, double weight) {
  return std::abs(weight) < 0.5 ? a + (b - a) * weight : b + (b - a) * (weight - 1);
}

Term decayed(Term param, const Adam& adam) {
  if (!adam.lr.tensor.q) return param * (1 - adam.lr.number * adam.decay);
  return param * cast(1.0 - adam.lr.tensor * adam.decay, param.type().dtype);
}

// Results: parameters, gradients, first moments, second moments, their maxima.
void adam_step(DecomposeQuery& q, const Adam& adam, size_t i, size_t count) {
  Term param = wide_item(q, 0, i), grad = wide_item(q, 1, i);
  const DType dtype = param.type().dtype;
  if (adam.maximize) grad = -grad;
  if (adam.decay != 0) {
    if (adam.decoupled) {
      param = decayed(param, adam);
    } else {
      grad = grad + param * adam.decay;
    }
  }
  const Term moment = moved(wide_item(q, 2, i), grad, 1 - adam.beta1);
  const Term second = wide_item(q, 3, i) * adam.beta2 + grad * (1 - adam.beta2) * grad;
  Term bound = second;
  if (adam.amsgrad) bound = write(q, "aten::maximum", {wide_item(q, 4, i).ref(), second.ref()});

  const Term step = cast(item(q, 5, i), DType::f64);
  const Term size =
      write(q, "aten::div.Tensor", {adam.lr.arg(), bias_correction(q, adam.beta1, step).ref()});
  const Term root = sqrt(bias_correction(q, adam.beta2, step));
  const Term denominator = sqrt(bound) / cast(root, dtype) + adam.eps;
  const Term change = moment * cast(-size, dtype) / denominator;
  give(q, i, param + change);
  give(q, count + i, item(q, 1, i));
  give(q, 2 * count + i, moment);
  give(q, 3 * count + i, second);
  if (adam.amsgrad) give(q, 4 * count + i, bound);
}

// (params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, steps, lr, beta1, beta2, weight_decay,
// eps, amsgrad, maximize, grad_scale, found_inf)
template <bool decoupled>
bool adam(DecomposeQuery& q) {
  if (!q.is_none(13) || !q.is_none(14)) return false;
  const size_t count = q.values(0).size();
  const bool amsgrad = q.boolean(11);
  if (!lists_fit(q, {0, 1, 2, 3}, kFloats) || (amsgrad && !lists_fit(q, {0, 4}, kFloats)) ||
      q.values(5).size() != count) {
    return false;
  }
  for (size_t i = 0; i < count; ++i) {
    const TensorType& step = q.type_of(q.values(5)[i]);
    if (step.rank() != 0 || step.dtype != DType::f32) return false;
  }
  if (q.is_tensor(6) && q.type(6).rank() != 0) return false;
  const Adam settings{.decoupled = decoupled,
                      .lr = rate_at(q, 6),
                      .beta1 = q.number(7),
                      .beta2 = q.number(8),
                      .decay = q.number(9),
                      .eps = q.number(10),
                      .amsgrad = amsgrad,
                      .maximize = q.boolean(12)};
  for (size_t i = 0; i < count; ++i) adam_step(q, settings, i, count);
  return true;
}

struct Sgd {
  double decay = 0, momentum = 0;
  Rate lr;
  double dampening = 0;
  bool nesterov = false, maximize = false, first = false;
};

// Results: parameters, gradients, momenta.
void sgd_step(DecomposeQuery& q, const Sgd& sgd, size_t i, size_t count) {
  const Term param = item(q, 0, i);
  Term grad = item(q, 1, i);
  if (sgd.maximize) grad = -grad;
  if (sgd.decay != 0) grad = grad + param * sgd.decay;
  if (sgd.momentum != 0) {
    Term momentum = grad;
    if (!sgd.first) momentum = item(q, 2, i) * sgd.momentum + grad * (1 - sgd.dampening);
    give(q, 2 * count + i, momentum);
    grad = sgd.nesterov ? grad + momentum * sgd.momentum : momentum;
  } else if (!q.values(2).empty()) {
    give(q, 2 * count + i, item(q, 2, i));
  }
  const Term change =
      sgd.lr.tensor.q ? grad * cast(-sgd.lr.tensor, param.type().dtype) : grad * -sgd.lr.number;
  give(q, i, param + change);
  give(q, count + i, item(q, 1, i));
}

// (params, grads, momentum_buffers, weight_decay, momentum, lr, dampening, nesterov, maximize,
// is_first_step, grad_scale, found_inf)
bool sgd(DecomposeQuery& q) {
  if (!q.is_none(10) || !q.is_none(11) || !lists_fit(q, {0, 1}, kReals)) return false;
  if (q.is_tensor(5) && q.type(5).rank() != 0) return false;
  const size_t count = q.values(0).size();
  if ((q.number(4) != 0 || !q.values(2).empty()) && !lists_fit(q, {0, 2}, kReals)) return false;
  const Sgd settings{.decay = q.number(3),
                     .momentum = q.number(4),
                     .lr = rate_at(q, 5),
                     .dampening = q.number(6),
                     .nesterov = q.boolean(7),
                     .maximize = q.boolean(8),
                     .first = q.boolean(9)};
  for (size_t i = 0; i < count; ++i) sgd_step(q, settings, i, count);
  return true;
}

const Meaning kMeanings[] = {
    {.name = "aten::_fused_adam", .decompose = adam<false>},
    {.name = "aten::_fused_adam.tensor_lr", .decompose = adam<false>},
    {.name = "aten::_fused_adamw", .decompose = adam<true>},
    {.name = "aten::_fused_adamw.tensor_lr", .decompose = adam<true>},
    {.name = "aten::_fused_sgd", .decompose = sgd},
    {.name = "aten::_fused_sgd.tensor_lr", .decompose = sgd},
};

}  // namespace

std::span<const Meaning> optimizer_decompositions() { return kMeanings; }

}  // namespace smelt
