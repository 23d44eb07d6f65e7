#include "ops/rules/element_query.h"

#include "ops/rules/element.h"

namespace smelt {
namespace {

// A number as an element of that dtype, converted as torch fills a tensor.
Expr number_of(ElementQuery& q, const Arg& number, DType dtype) {
  if (number.is<double>()) return q.constant(dtype, number.get<double>());
  if (number.is<bool>()) return q.constant(dtype, int64_t{number.get<bool>()});
  SMELT_CHECK(number.is<Size>(), "neither a tensor nor a real number: " + str(number));
  const Size& size = number.get<Size>();
  if (size.is_known()) return q.constant(dtype, size.known());
  return q.index_value(Index(size)).to(dtype);
}

}  // namespace

Expr ElementQuery::operand(size_t i) {
  if (!is_tensor(i)) return number_of(*this, arg(i), compute_);
  if (type(i).wrapped_number) return load(value(i), {}).to(compute_);
  return load(value(i), broadcast_place(graph(), at_, result().sizes, type(i).sizes));
}

Expr ElementQuery::computed(size_t i) {
  const bool is_scalar = !is_tensor(i) || type(i).rank() == 0;
  return is_scalar ? operand(i).to(compute_) : rounded(i);
}

Expr ElementQuery::constant(DType dtype, double number) {
  if (dtype == DType::b8) return {&builder_, builder_.constant(dtype, int64_t{number != 0})};
  if (is_floating(dtype)) return {&builder_, builder_.constant(dtype, number)};
  return {&builder_, builder_.constant(dtype, static_cast<int64_t>(number))};
}

Expr ElementQuery::constant(DType dtype, int64_t number) {
  if (dtype == DType::b8) return {&builder_, builder_.constant(dtype, int64_t{number != 0})};
  if (is_floating(dtype)) return {&builder_, builder_.constant(dtype, static_cast<double>(number))};
  return {&builder_, builder_.constant(dtype, number)};
}

Index ElementQuery::checked_index(Expr element, const Size& size, bool wrap) {
  Expr place = element.to(DType::i64);
  if (wrap) place = select(place < 0.0, place + index_value(Index(size)), place);
  return builder_.as_index(builder_.check(place.value, size));
}

}  // namespace smelt
