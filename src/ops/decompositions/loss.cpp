// Losses between two tensors, and their gradients.
#include "ops/decompositions/families.h"
#include "ops/rules/decompose.h"
#include "ops/rules/element.h"
#include "ops/rules/promotion.h"

namespace smelt {
namespace {

// torch's numbering.
constexpr int64_t kNoReduction = 0, kMean = 1, kSum = 2;

std::optional<int64_t> reduction_at(const DecomposeQuery& q, size_t i) {
  const std::optional<int64_t> reduction = q.size_at(i).as_known();
  if (!reduction || *reduction < kNoReduction || *reduction > kSum) return std::nullopt;
  return reduction;
}

// What the kernel computes in, if the op is one of plain floats with elements.
std::optional<DType> loss_dtype(const DecomposeQuery& q, std::initializer_list<size_t> operands) {
  if (!is_wanted(q, 0) || !is_plain_float(q.result(0))) return std::nullopt;
  for (size_t i : operands) {
    if (!is_plain_float(q.type(i)) || !has_elements(q.type(i))) return std::nullopt;
  }
  return accumulate_of(q.result(0).dtype);
}

void give_reduced(DecomposeQuery& q, Term loss, int64_t reduction) {
  if (reduction == kNoReduction) return give(q, 0, loss);
  const TensorType& type = loss.type();
  const Dims all = dims_from(0, type.rank());
  const Term total = sum(loss, all, false);
  give(q, 0, reduction == kMean ? total / type.numel() : total);
}

// Multiplied by `factor`, and by what the mean over the elements of `like` needs.
Term scaled(Term x, double factor, int64_t reduction, const TensorType& like) {
  if (reduction != kMean) return factor == 1 ? x : x * factor;
  const Size count = like.numel();
  if (count.is_known()) return x * (factor / static_cast<double>(count.known()));
  return x * factor / count;
}

// mse_loss(self, target, reduction)
bool mse_loss(DecomposeQuery& q) {
  const std::optional<DType> dtype = loss_dtype(q, {0, 1});
  const std::optional<int64_t> reduction = reduction_at(q, 2);
  if (!dtype || !reduction) return false;
  give_reduced(q, square(argument_as(q, 0, *dtype) - argument_as(q, 1, *dtype)), *reduction);
  return true;
}

// mse_loss_backward(grad_output, self, target, reduction)
bool mse_loss_backward(DecomposeQuery& q) {
  const std::optional<DType> dtype = loss_dtype(q, {0, 1, 2});
  const std::optional<int64_t> reduction = reduction_at(q, 3);
  if (!dtype || !reduction) return false;
  const Term difference = argument_as(q, 1, *dtype) - argument_as(q, 2, *dtype);
  give(q, 0, scaled(difference, 2, *reduction, q.type(1)) * argument_as(q, 0, *dtype));
  return true;
}

// soft_margin_loss(self, target, reduction): log(1 + exp(-target * x)); the kernels of f16 and bf16
// round each step
bool soft_margin(DecomposeQuery& q) {
  const std::optional<DType> dtype = loss_dtype(q, {0, 1});
  const std::optional<int64_t> reduction = reduction_at(q, 2);
  if (!dtype || !reduction || takes(kHalves, q.result().dtype)) return false;
  const Term power = exp(-argument_as(q, 1, *dtype) * argument_as(q, 0, *dtype));
  give_reduced(q, write(q, "aten::log1p", {power.ref()}), *reduction);
  return true;
}

// soft_margin_loss_backward(grad_output, self, target, reduction)
bool soft_margin_backward(DecomposeQuery& q) {
  const std::optional<DType> dtype = loss_dtype(q, {0, 1, 2});
  const std::optional<int64_t> reduction = reduction_at(q, 3);
  if (!dtype || !reduction || takes(kHalves, q.result().dtype)) return false;
  const Term target = argument_as(q, 2, *dtype);
  const Term power = exp(-target * argument_as(q, 1, *dtype));
  const Term slope = scaled(target * power / (power + 1.0), -1, *reduction, q.type(1));
  give(q, 0, slope * argument_as(q, 0, *dtype));
  return true;
}

// smooth_l1_loss(self, target, reduction, beta), huber_loss(self, target, reduction, delta): a
// parabola up to the bound, a straight line beyond
template <bool huber>
bool smooth_loss(DecomposeQuery& q) {
  const std::optional<DType> dtype = loss_dtype(q, {0, 1});
  const std::optional<int64_t> reduction = reduction_at(q, 2);
  const double bound = q.number(3);
  if (!dtype || !reduction || !(bound > 0)) return false;
  const Term distance = abs(argument_as(q, 0, *dtype) - argument_as(q, 1, *dtype));
  const Term half_square = distance * 0.5 * distance;
  const Term line = distance - 0.5 * bound;
  const Term loss = select(at_least(distance, bound), huber ? line * bound : line,
                           huber ? half_square : half_square / bound);
  give_reduced(q, loss, *reduction);
  return true;
}

// (grad_output, self, target, reduction, bound)
template <bool huber>
bool smooth_loss_backward(DecomposeQuery& q) {
  const std::optional<DType> dtype = loss_dtype(q, {0, 1, 2});
  const std::optional<int64_t> reduction = reduction_at(q, 3);
  const double bound = q.number(4);
  if (!dtype || !reduction || !(bound > 0)) return false;
  const Term difference = argument_as(q, 1, *dtype) - argument_as(q, 2, *dtype);
  const Term sign = cast(greater_than(difference, 0), *dtype) * 2 - 1.0;
  const Term slope = select(at_least(abs(difference), bound), huber ? sign * bound : sign,
                            huber ? difference : difference / bound);
  give(q, 0, scaled(slope, 1, *reduction, q.type(1)) * argument_as(q, 0, *dtype));
  return true;
}

// Fails the kernel where the condition does not hold.
void expect(ElementQuery& q, Expr condition) {
  const Expr zero = q.constant(DType::i64, int64_t{0}), one = q.constant(DType::i64, int64_t{1});
  q.builder().check(select(condition, zero, one).value, 1);
}

// binary_cross_entropy(self, target, weight, reduction), not reduced. Numbers outside of [0, 1] are
// refused.
Expr cross_entropy(ElementQuery& q) {
  const Expr input = q.computed(0), target = q.computed(1);
  for (const Expr& x : {input, target}) expect(q, (x >= 0.0) & (x <= 1.0));
  const auto bounded = [](Expr x) { return max(x, -100.0); };
  const Expr loss = (target - 1.0) * bounded(log1p(-input)) - target * bounded(log(input));
  return q.is_none(2) ? loss : loss * q.operand(2).to(loss.dtype());
}

// The kernels of f16 and bf16 round each step.
Decision allows_cross_entropy(const NodeReader& q) {
  if (!q.size_at(3).is(kNoReduction)) return Decision::forbid("it is reduced");
  for (size_t i = 0; i < 3; ++i) {
    if (!q.is_none(i) && !takes(kReals, q.type(i).dtype)) return Decision::forbid("rounded steps");
  }
  return Decision::allow();
}

bool reduced_cross_entropy(DecomposeQuery& q) {
  const std::optional<DType> dtype = loss_dtype(q, {0, 1});
  const std::optional<int64_t> reduction = reduction_at(q, 3);
  if (!dtype || !reduction || *reduction == kNoReduction || takes(kHalves, q.type(0).dtype))
    return false;
  const Term loss =
      write(q, "aten::binary_cross_entropy", {q.arg(0), q.arg(1), q.arg(2), kNoReduction});
  give_reduced(q, loss, *reduction);
  return true;
}

constexpr Meaning cross_entropy_row() {
  Meaning row = pointwise("aten::binary_cross_entropy", 2, cross_entropy, 2 * kTranscendental,
                          allows_cross_entropy);
  row.decompose = reduced_cross_entropy;
  return row;
}

// binary_cross_entropy_backward(grad, input, target, weight, reduction); the kernels of f16 and
// bf16 round the least denominator to something else
bool cross_entropy_backward(DecomposeQuery& q) {
  const std::optional<DType> dtype = loss_dtype(q, {0, 1, 2});
  const std::optional<int64_t> reduction = reduction_at(q, 4);
  if (!dtype || !reduction || takes(kHalves, q.type(1).dtype)) return false;
  const Term input = argument_as(q, 1, *dtype);
  const Term product = (1.0 - input) * input;
  const Term denominator = write(q, "aten::clamp_min", {product.ref(), 1e-12});
  Term grad = argument_as(q, 0, *dtype) * (input - argument_as(q, 2, *dtype)) / denominator;
  if (!q.is_none(3)) grad = grad * argument_as(q, 3, *dtype);
  give(q, 0, *reduction == kMean ? grad / q.type(1).numel() : grad);
  return true;
}

// log(sigmoid(x)), which neither overflows nor loses small numbers.
Term log_sigmoid(Term x) {
  const Term below_zero = write(*x.q, "aten::clamp_max", {x.ref(), 0.0});
  return below_zero - write(*x.q, "aten::log1p", {exp(-abs(x)).ref()});
}

// binary_cross_entropy_with_logits(input, target, weight, pos_weight, reduction)
bool cross_entropy_with_logits(DecomposeQuery& q) {
  const std::optional<DType> dtype = loss_dtype(q, {0, 1});
  const std::optional<int64_t> reduction = reduction_at(q, 4);
  if (!dtype || !reduction) return false;
  const Term input = argument_as(q, 0, *dtype), target = argument_as(q, 1, *dtype);
  Term likelihood = log_sigmoid(input);
  if (!q.is_none(3)) likelihood = likelihood * ((argument_as(q, 3, *dtype) - 1.0) * target + 1.0);
  Term loss = (1.0 - target) * input - likelihood;
  if (!q.is_none(2)) loss = loss * argument_as(q, 2, *dtype);
  give_reduced(q, loss, *reduction);
  return true;
}

const Meaning kMeanings[] = {
    cross_entropy_row(),
    {.name = "aten::binary_cross_entropy_backward", .decompose = cross_entropy_backward},
    {.name = "aten::binary_cross_entropy_with_logits", .decompose = cross_entropy_with_logits},
    {.name = "aten::huber_loss", .decompose = smooth_loss<true>},
    {.name = "aten::huber_loss_backward", .decompose = smooth_loss_backward<true>},
    {.name = "aten::mse_loss", .decompose = mse_loss},
    {.name = "aten::mse_loss_backward", .decompose = mse_loss_backward},
    {.name = "aten::smooth_l1_loss", .decompose = smooth_loss<false>},
    {.name = "aten::smooth_l1_loss_backward", .decompose = smooth_loss_backward<false>},
    {.name = "aten::soft_margin_loss", .decompose = soft_margin},
    {.name = "aten::soft_margin_loss_backward", .decompose = soft_margin_backward},
};

}  // namespace

std::span<const Meaning> loss_decompositions() { return kMeanings; }

}  // namespace smelt
