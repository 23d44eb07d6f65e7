// Losses over classes: the target is a tensor of class indices.
#include "ops/rules/layout.h"
#include "ops/rules/promotion.h"
#include "ops/shapes/families.h"

namespace smelt {
namespace {

constexpr int64_t kNoReduction = 0;

// Input, target and weight as all four ops take them; `classes` is the input's dimension of
// classes.
Decision check_classes(const ShapeQuery& q, const TensorType& input, size_t target_arg,
                       int classes) {
  SymbolTable& s = q.symbols();
  const TensorType target = q.tensor(target_arg);
  if (!takes(kFloats, input.dtype) || target.dtype != DType::i64 || target.device != input.device) {
    return Decision::forbid("no rule for these dtypes");
  }
  if (!q.is_none(target_arg + 1)) {
    const TensorType weight = q.tensor(target_arg + 1);
    if (weight.dtype != input.dtype || weight.rank() != 1 ||
        !equal(s, weight.sizes[0], input.sizes[classes])) {
      return Decision::forbid("the weight does not fit");
    }
  }
  return Decision::allow();
}

// Input [N, C] with target [N], or input [C] with a scalar target.
bool rows_fit(SymbolTable& s, const TensorType& input, const TensorType& target) {
  if (input.rank() == 1) return target.rank() == 0;
  return input.rank() == 2 && target.rank() == 1 && equal(s, input.sizes[0], target.sizes[0]);
}

// Input [N, C, H, W] with target [N, H, W].
bool images_fit(SymbolTable& s, const TensorType& input, const TensorType& target) {
  return input.rank() == 4 && target.rank() == 3 && equal(s, input.sizes[0], target.sizes[0]) &&
         equal(s, input.sizes[2], target.sizes[1]) && equal(s, input.sizes[3], target.sizes[2]);
}

// (self, target, weight, reduction, ignore_index)
template <bool images>
Decision nll_loss(ShapeQuery& q) {
  SymbolTable& s = q.symbols();
  const TensorType input = q.tensor(0), target = q.tensor(1);
  const bool fits = images ? images_fit(s, input, target) : rows_fit(s, input, target);
  if (!fits) return Decision::forbid("input and target do not fit");
  if (Decision fit = check_classes(q, input, 1, images ? 1 : input.rank() - 1); !fit) return fit;
  q.push(fresh_like(input, q.integer(3) == kNoReduction ? target.sizes : Sizes()));
  q.push(fresh_like(input, {}));
  return Decision::allow();
}

// (grad_output, self, target, weight, reduction, ignore_index, total_weight)
template <bool images>
Decision nll_loss_backward(ShapeQuery& q) {
  SymbolTable& s = q.symbols();
  const TensorType grad = q.tensor(0), input = q.tensor(1), target = q.tensor(2),
                   total = q.tensor(6);
  const bool fits = images ? images_fit(s, input, target) : rows_fit(s, input, target);
  if (!fits) return Decision::forbid("input and target do not fit");
  if (Decision fit = check_classes(q, input, 2, images ? 1 : input.rank() - 1); !fit) return fit;
  const Sizes wanted = q.integer(4) == kNoReduction ? target.sizes : Sizes();
  if (grad.dtype != input.dtype || !equal(s, grad.sizes, wanted) || total.rank() != 0) {
    return Decision::forbid("the gradient does not fit");
  }
  // For images the gradient is an empty_like that must turn out contiguous.
  if (images && !is_contiguous(s, preserved(s, input)))
    return Decision::forbid("the input is not contiguous");
  q.push(images ? preserved(s, input) : fresh_like(input, input.sizes));
  return Decision::allow();
}

constexpr OpRow kRows[] = {
    {"aten::nll_loss2d_backward", nll_loss_backward<true>, {.may_fail = true}},
    {"aten::nll_loss2d_forward", nll_loss<true>, {.may_fail = true}},
    {"aten::nll_loss_backward", nll_loss_backward<false>, {.may_fail = true}},
    {"aten::nll_loss_forward", nll_loss<false>, {.may_fail = true}},
};

}  // namespace

std::span<const OpRow> class_loss_rows() { return kRows; }

}  // namespace smelt
