// Losses with a margin: of classes, of several labels, of signs.
#include "ops/rules/layout.h"
#include "ops/rules/promotion.h"
#include "ops/shapes/families.h"

namespace smelt {
namespace {

constexpr int64_t kNone = 0;  // no reduction

bool is_reduction(const ShapeQuery& q, size_t i) { return q.integer(i) >= 0 && q.integer(i) <= 2; }

// One row of scores, or a batch of them.
Decision check_scores(const ShapeQuery& q, const TensorType& self) {
  if (self.rank() < 1 || self.rank() > 2 || !takes(kReals, self.dtype) ||
      equal(q.symbols(), self.sizes.back(), 0))
    return Decision::forbid("no rule for these scores");
  return Decision::allow();
}

Sizes loss_sizes(const TensorType& self, int64_t reduction) {
  return reduction == kNone && self.rank() == 2 ? Sizes{self.sizes[0]} : Sizes{};
}

// multi_margin_loss(self, target, p, margin, weight, reduction)
Decision multi_margin(ShapeQuery& q, size_t at) {
  SymbolTable& s = q.symbols();
  const TensorType self = q.tensor(at), target = q.tensor(at + 1);
  if (Decision fits = check_scores(q, self); !fits) return fits;
  const Size rows = self.rank() == 2 ? self.sizes[0] : Size(1);
  const bool target_fits = target.dtype == DType::i64 && target.device == self.device &&
                           target.rank() <= 1 && equal(s, target.numel(), rows) &&
                           (self.rank() == 1 || target.rank() == 1);
  const double p = q.number(at + 2);
  if (!target_fits || (p != 1 && p != 2) || !is_reduction(q, at + 5))
    return Decision::forbid("the operands do not fit");
  if (q.is_none(at + 4)) return Decision::allow();
  const TensorType weight = q.tensor(at + 4);
  return weight.rank() == 1 && weight.dtype == self.dtype &&
                 equal(s, weight.sizes[0], self.sizes.back())
             ? Decision::allow()
             : Decision::forbid("the weight does not fit");
}

Decision multi_margin_loss(ShapeQuery& q) {
  if (Decision fits = multi_margin(q, 0); !fits) return fits;
  const TensorType self = q.tensor(0), target = q.tensor(1);
  const bool keeps_rows = q.integer(5) == kNone && target.rank() == 1;
  q.push(fresh_like(self, keeps_rows ? target.sizes : Sizes{}));
  return Decision::allow();
}

// (grad_output, self, target, p, margin, weight, reduction)
Decision multi_margin_loss_gradient(ShapeQuery& q) {
  if (Decision fits = multi_margin(q, 1); !fits) return fits;
  const TensorType self = q.tensor(1);
  q.push(fresh_like(self, self.sizes));
  return Decision::allow();
}

// multilabel_margin_loss_forward(self, target, reduction): the loss and which classes are meant.
Decision multilabel_margin_loss(ShapeQuery& q) {
  const TensorType self = q.tensor(0), target = q.tensor(1);
  if (Decision fits = check_scores(q, self); !fits) return fits;
  if (target.dtype != DType::i64 || !equal(q.symbols(), target.sizes, self.sizes) ||
      !is_reduction(q, 2))
    return Decision::forbid("the target does not fit");
  q.push(fresh_like(self, loss_sizes(self, q.integer(2))));
  q.push(fresh_like(self, target.sizes));
  return Decision::allow();
}

// (grad_output, self, target, reduction, is_target)
Decision multilabel_margin_loss_gradient(ShapeQuery& q) {
  const TensorType grad = q.tensor(0), self = q.tensor(1), target = q.tensor(2);
  if (Decision fits = check_scores(q, self); !fits) return fits;
  const bool target_fits = target.dtype == DType::i64 && q.tensor(4).dtype == self.dtype &&
                           equal(q.symbols(), target.sizes, self.sizes) &&
                           equal(q.symbols(), q.tensor(4).sizes, self.sizes);
  if (!target_fits || grad.dtype != self.dtype || !is_reduction(q, 3))
    return Decision::forbid("the target does not fit");
  q.push(fresh_like(self, self.sizes));
  return Decision::allow();
}

// soft_margin_loss(self, target, reduction); the gradient has its own in front.
template <size_t at>
Decision soft_margin(ShapeQuery& q) {
  const TensorType self = q.tensor(at), target = q.tensor(at + 1);
  const bool is_plain =
      is_row_major(self) && is_row_major(target) && equal(q.symbols(), self.sizes, target.sizes);
  if (!is_plain || self.dtype != target.dtype || self.device != target.device ||
      q.tensor(0).dtype != self.dtype || !takes(kFloats, self.dtype) || !is_reduction(q, at + 2))
    return Decision::forbid("no rule for these operands");
  const bool is_whole = at == 1 || q.integer(at + 2) == kNone;
  q.push(fresh_like(self, is_whole ? self.sizes : Sizes{}));
  return Decision::allow();
}

constexpr OpRow kRows[] = {
    {"aten::multi_margin_loss", multi_margin_loss, {.may_fail = true}},
    {"aten::multi_margin_loss_backward", multi_margin_loss_gradient, {.may_fail = true}},
    {"aten::multilabel_margin_loss_backward", multilabel_margin_loss_gradient, {.may_fail = true}},
    {"aten::multilabel_margin_loss_forward", multilabel_margin_loss, {.may_fail = true}},
    {"aten::soft_margin_loss", soft_margin<0>, {.may_fail = true}},
    {"aten::soft_margin_loss_backward", soft_margin<1>, {.may_fail = true}},
};

}  // namespace

std::span<const OpRow> margin_loss_rows() { return kRows; }

}  // namespace smelt
