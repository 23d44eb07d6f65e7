// Tensors from nothing: constants, ranges, the identity.
#include <cmath>

#include "ops/meanings/families.h"
#include "ops/rules/element.h"

namespace smelt {
namespace {

template <int number>
Expr constant(ElementQuery& q) {
  return q.constant(q.result().dtype, int64_t{number});
}

// Argument `value` is the number of each element.
template <size_t value>
Expr full(ElementQuery& q) {
  q.set_compute_dtype(q.result().dtype);
  return q.operand(value);
}

template <size_t value>
Decision allows_full(const NodeReader& q) {
  const Arg& number = q.arg(value);
  if (is_unknown_number(q, value)) return Decision::allow();  // the graph checks that it fits
  if (!number.is_number()) return Decision::forbid("not a number");
  if (is_floating(q.result().dtype) || q.result().dtype == DType::b8) return Decision::allow();
  // What does not fit the dtype is an error of torch's.
  const bool small = number.is<bool>() ||
                     (number.is<double>() && std::abs(number.get<double>()) < 128) ||
                     (number.is<Size>() && number.get<Size>().is_known() &&
                      (q.result().dtype == DType::i64 || std::abs(q.integer(value)) < 128));
  const bool negative = q.result().dtype == DType::u8 && q.number(value) < 0;
  if (!small || negative) return Decision::forbid("a number the dtype may not hold");
  return Decision::allow();
}

// arange(end), arange(start, end), arange(start, end, step)
template <size_t numbers>
Expr arange(ElementQuery& q) {
  const Arg start = numbers == 1 ? Arg(0) : q.arg(0);
  const Arg step = numbers == 3 ? q.arg(2) : Arg(1);
  if (start.is<Size>() && step.is<Size>()) {
    return q.index_value(Index(start.get<Size>()) + q.at()[0] * step.get<Size>());
  }
  const auto value = [](const Arg& number) {
    return number.is<double>() ? number.get<double>()
                               : static_cast<double>(number.get<Size>().known());
  };
  return value(start) + value(step) * q.index_value(q.at()[0]).to(DType::f64);
}

template <size_t numbers>
Decision allows_arange(const NodeReader& q) {
  bool fractions = false, known = true;
  for (size_t i = 0; i < numbers; ++i) {
    if (!q.arg(i).is<double>() && !q.arg(i).is<Size>()) return Decision::forbid("not a range");
    const bool is_end = i == (numbers == 1 ? 0 : 1);
    if (is_end) continue;
    fractions = fractions || q.arg(i).is<double>();
    known = known && (!q.arg(i).is<Size>() || q.arg(i).get<Size>().is_known());
  }
  if (fractions && !known) return Decision::forbid("a number that is not known");
  return Decision::allow();
}

Expr eye(ElementQuery& q) {
  const Expr on_diagonal = q.index_value(q.at()[0]) == q.index_value(q.at()[1]);
  return on_diagonal.to(accumulate_of(q.result().dtype));
}

// linspace(start, end, steps): each half is counted from its own end.
Expr linspace(ElementQuery& q) {
  const DType dtype = q.result().dtype;
  const int64_t steps = q.integer(2);
  const double start = q.number(0), end = q.number(1);
  const Expr i = q.index_value(q.at()[0]);
  const Expr step = (q.constant(dtype, end) - q.constant(dtype, start)) /
                    static_cast<double>(steps > 1 ? steps - 1 : 1);
  const Expr from_start = start + step * i.to(dtype);
  const Expr from_end = end - step * (static_cast<double>(steps - 1) - i).to(dtype);
  // torch puts the start in a range of one.
  if (steps == 1) return q.constant(dtype, start);
  return select(i < static_cast<double>(steps / 2), from_start, from_end);
}

Decision allows_linspace(const NodeReader& q) {
  const DType dtype = q.result().dtype;
  if (dtype != DType::f32 && dtype != DType::f64)
    return Decision::forbid("a range of other than f32 and f64");
  if (!q.size_at(2).is_known()) return Decision::forbid("a number of steps that is not known");
  for (size_t i : {0, 1}) {
    if (q.arg(i).is<Size>() && !q.size_at(i).is_known())
      return Decision::forbid("a number that is not known");
    if (!q.arg(i).is_number()) return Decision::forbid("not a range");
  }
  return Decision::allow();
}

constexpr Meaning factory(std::string_view name, ElementRule rule,
                          Decision (*allows)(const NodeReader&) = nullptr) {
  return elsewhere(Pattern::factory, name, rule, allows);
}

constexpr Meaning kRows[] = {
    factory("aten::arange", arange<1>, allows_arange<1>),
    factory("aten::arange.start", arange<2>, allows_arange<2>),
    factory("aten::arange.start_step", arange<3>, allows_arange<3>),
    factory("aten::eye", eye),
    factory("aten::eye.m", eye),
    with_numbers(factory("aten::full", full<1>, allows_full<1>), {1}),
    with_numbers(factory("aten::full_like", full<1>, allows_full<1>), {1}),
    factory("aten::linspace", linspace, allows_linspace),
    with_numbers(factory("aten::new_full", full<2>, allows_full<2>), {2}),
    factory("aten::new_ones", constant<1>),
    factory("aten::new_zeros", constant<0>),
    factory("aten::ones", constant<1>),
    factory("aten::ones_like", constant<1>),
    with_numbers(factory("aten::scalar_tensor", full<0>, allows_full<0>), {0}),
    factory("aten::zero", constant<0>),
    factory("aten::zeros", constant<0>),
    factory("aten::zeros_like", constant<0>),
};

}  // namespace

std::span<const Meaning> factory_meanings() { return kRows; }

}  // namespace smelt
