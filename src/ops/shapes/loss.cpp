// Elementwise losses with their reduction, and their gradients. The index losses (nll_loss) are in
// index.cpp.
#include "ops/rules/elementwise.h"
#include "ops/rules/layout.h"
#include "ops/shapes/families.h"

namespace smelt {
namespace {

constexpr int64_t kNoReduction = 0;

// 0 is none, 1 is mean, 2 is sum.
bool is_reduction(const ShapeQuery& q, size_t arg) {
  return q.integer(arg) >= 0 && q.integer(arg) <= 2;
}

// The loss computed elementwise, then reduced to a scalar unless `reduction` is none.
template <size_t reduction>
Decision iterated_loss(ShapeQuery& q) {
  if (!is_reduction(q, reduction)) return Decision::forbid("no such reduction");
  if (Decision made = binary<promotes(kFloats)>(q); !made) return made;
  if (q.integer(reduction) != kNoReduction) q.results[0] = fresh_like(*q.results[0], {});
  return Decision::allow();
}

// All operands have one dtype and the sizes of the input: the plain case of the losses below.
Decision check_alike(const ShapeQuery& q, const TensorType& input,
                     std::initializer_list<size_t> others) {
  if (!takes(kFloats, input.dtype)) return Decision::forbid("no rule for this dtype");
  for (size_t i : others) {
    if (q.is_none(i)) continue;
    const TensorType other = q.tensor(i);
    if (other.dtype != input.dtype || other.device != input.device ||
        !equal(q.symbols(), other.sizes, input.sizes)) {
      return Decision::forbid("the operands differ in dtype, device or sizes");
    }
  }
  return Decision::allow();
}

// Written into an empty_like of the input, then reduced.
template <size_t reduction>
Decision loss_like_input(ShapeQuery& q) {
  const TensorType input = q.tensor(0);
  if (!is_reduction(q, reduction)) return Decision::forbid("no such reduction");
  if (Decision alike = check_alike(q, input, {1}); !alike) return alike;
  if (reduction == 3 && !q.is_none(2)) {
    if (Decision alike = check_alike(q, input, {2}); !alike) return alike;
  }
  const bool whole = q.integer(reduction) == kNoReduction;
  q.push(whole ? preserved(q.symbols(), input) : fresh_like(input, {}));
  return Decision::allow();
}

Decision huber_loss(ShapeQuery& q) {
  if (!(q.number(3) > 0)) return Decision::forbid("delta is not positive");
  return loss_like_input<2>(q);
}

Decision smooth_l1_loss(ShapeQuery& q) {
  if (!(q.number(3) >= 0)) return Decision::forbid("beta is negative");
  return iterated_loss<2>(q);
}

// grad_output is of the input's sizes or a scalar; the gradient is contiguous.
Decision contiguous_gradient(ShapeQuery& q) {
  const TensorType input = q.tensor(1), grad = q.tensor(0);
  if (Decision alike = check_alike(q, input, {2}); !alike) return alike;
  if (grad.dtype != input.dtype || grad.device != input.device)
    return Decision::forbid("the gradient differs");
  if (!expandable(q.symbols(), grad.sizes, input.sizes))
    return Decision::forbid("the gradient does not broadcast");
  q.push(fresh_like(input, input.sizes));
  return Decision::allow();
}

// binary_cross_entropy_backward(grad, input, target, weight, reduction)
Decision cross_entropy_gradient(ShapeQuery& q) {
  const TensorType input = q.tensor(1), grad = q.tensor(0);
  if (Decision alike = check_alike(q, input, {2, 3}); !alike) return alike;
  if (grad.dtype != input.dtype || grad.device != input.device)
    return Decision::forbid("the gradient differs");
  if (grad.rank() > 0 && !equal(q.symbols(), grad.sizes, input.sizes)) {
    return Decision::forbid("the gradient has other sizes");
  }
  q.push(preserved(q.symbols(), input));
  return Decision::allow();
}

// binary_cross_entropy_with_logits(input, target, weight, pos_weight, reduction): computed in a
// copy of the target
Decision cross_entropy_with_logits(ShapeQuery& q) {
  const TensorType input = q.tensor(0), target = q.tensor(1);
  if (Decision alike = check_alike(q, input, {1}); !alike) return alike;
  for (size_t i : {2, 3}) {
    if (q.is_none(i)) continue;
    const TensorType weight = q.tensor(i);
    if (weight.dtype != input.dtype || weight.device != input.device ||
        !expandable(q.symbols(), weight.sizes, input.sizes)) {
      return Decision::forbid("a weight differs in dtype or device, or does not broadcast");
    }
  }
  if (!is_reduction(q, 4)) return Decision::forbid("no such reduction");
  q.push(q.integer(4) == kNoReduction ? preserved(q.symbols(), target) : fresh_like(input, {}));
  return Decision::allow();
}

constexpr OpRow kRows[] = {
    {"aten::binary_cross_entropy", loss_like_input<3>, {.may_fail = true}},
    {"aten::binary_cross_entropy_backward", cross_entropy_gradient, {.may_fail = true}},
    {"aten::binary_cross_entropy_with_logits", cross_entropy_with_logits, {.may_fail = true}},
    {"aten::huber_loss", huber_loss},
    {"aten::huber_loss_backward", contiguous_gradient},
    {"aten::mse_loss", iterated_loss<2>},
    {"aten::mse_loss_backward", contiguous_gradient},
    {"aten::smooth_l1_loss", smooth_l1_loss},
    {"aten::smooth_l1_loss_backward", contiguous_gradient},
};

}  // namespace

std::span<const OpRow> loss_rows() { return kRows; }

}  // namespace smelt
