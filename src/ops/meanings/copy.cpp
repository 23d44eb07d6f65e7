// Casts, copies, fills, and choices by a mask.
#include <cmath>

#include "ops/meanings/families.h"
#include "ops/rules/element.h"

namespace smelt {
namespace {

Expr same(ElementQuery& q) { return q.operand(0); }

// A value of the result's dtype, whatever the first argument holds.
Expr argument(ElementQuery& q, size_t i) {
  q.set_compute_dtype(q.result().dtype);
  return q.operand(i).to(q.result().dtype);
}
Expr second(ElementQuery& q) { return argument(q, 1); }

// masked_fill(self, mask, value)
Expr masked_fill(ElementQuery& q) {
  const DType dtype = q.result().dtype;
  const DType between = accumulate_of(dtype);
  const Expr value = argument(q, 2).to(between);
  return select(q.operand(1).to(DType::b8), value, q.operand(0).to(between));
}

Decision number_fits(const NodeReader& q, size_t i) {
  const Arg& number = q.arg(i);
  // What torch makes of a number its dtype does not hold is an error, or undefined.
  if (is_floating(q.result().dtype) || !number.is_number()) return Decision::allow();
  if (number.is<double>() && !(std::abs(number.get<double>()) < 128))
    return Decision::forbid("a number the dtype may not hold");
  return Decision::allow();
}
Decision second_fits(const NodeReader& q) { return number_fits(q, 1); }
Decision third_fits(const NodeReader& q) { return number_fits(q, 2); }

// A number in a tensor's place is converted without a check; a float that the dtype does not hold
// becomes what the processor likes.
Decision number_converts(const NodeReader& q, size_t i) {
  if (!is_unknown_number(q, i) || is_floating(q.result().dtype)) return Decision::allow();
  if (!is_floating(q.type(i).dtype)) return Decision::allow();
  return Decision::forbid("a number the dtype may not hold");
}
Decision second_converts(const NodeReader& q) { return number_converts(q, 1); }
Decision third_converts(const NodeReader& q) { return number_converts(q, 2); }

constexpr Meaning kRows[] = {
    pointwise("aten::_conj_physical", 0, same),
    pointwise("aten::_to_copy", 0, same),
    pointwise("aten::clone", 0, same),
    pointwise("aten::lift_fresh_copy", 0, same),
    pointwise("aten::copy", 0, second),
    with_numbers(pointwise("aten::fill.Scalar", 0, second, kCheap, second_fits), {1}),
    with_numbers(pointwise("aten::fill.Tensor", 0, second, kCheap, second_converts), {1}),
    with_numbers(pointwise("aten::masked_fill.Scalar", 0, masked_fill, kCheap, third_fits), {2}),
    with_numbers(pointwise("aten::masked_fill.Tensor", 0, masked_fill, kCheap, third_converts),
                 {2}),
};

}  // namespace

std::span<const Meaning> copy_meanings() { return kRows; }

}  // namespace smelt
