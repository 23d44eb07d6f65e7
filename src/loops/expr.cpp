#include "base/error.h"
#include "loops/builder.h"

namespace smelt::loops {
namespace {

Expr swapped(Op op, Expr a, Expr b) { return apply(op, b, a); }

}  // namespace

Expr Expr::like(double number) const { return {builder, builder->constant(dtype(), number)}; }

Expr apply(Op op, Expr a) { return {a.builder, a.builder->op(op, a.value)}; }
Expr apply(Op op, Expr a, Expr b) { return {a.builder, a.builder->op(op, a.value, b.value)}; }

#define SMELT_BINARY(symbol, function, op)                                          \
  Expr operator symbol(Expr a, Expr b) { return function(Op::op, a, b); }           \
  Expr operator symbol(Expr a, double b) { return function(Op::op, a, a.like(b)); } \
  Expr operator symbol(double a, Expr b) { return function(Op::op, b.like(a), b); }
SMELT_BINARY(+, apply, add)
SMELT_BINARY(-, apply, sub)
SMELT_BINARY(*, apply, mul)
SMELT_BINARY(/, apply, div)
SMELT_BINARY(<, apply, lt)
SMELT_BINARY(<=, apply, le)
SMELT_BINARY(>, swapped, lt)
SMELT_BINARY(>=, swapped, le)
SMELT_BINARY(==, apply, eq)
SMELT_BINARY(!=, apply, ne)
#undef SMELT_BINARY

Expr operator-(Expr a) { return apply(Op::neg, a); }
Expr operator!(Expr a) {
  SMELT_CHECK(a.dtype() == DType::b8, "! is asked of a b8");
  return apply(Op::bit_not, a);
}
Expr operator&(Expr a, Expr b) { return apply(Op::bit_and, a, b); }
Expr operator|(Expr a, Expr b) { return apply(Op::bit_or, a, b); }
Expr operator^(Expr a, Expr b) { return apply(Op::bit_xor, a, b); }

Expr select(Expr condition, Expr yes, Expr no) {
  return {condition.builder,
          condition.builder->op(Op::select, condition.value, yes.value, no.value)};
}
Expr select(Expr condition, Expr yes, double no) { return select(condition, yes, yes.like(no)); }
Expr select(Expr condition, double yes, Expr no) { return select(condition, no.like(yes), no); }

Expr min(Expr a, Expr b) { return apply(Op::min, a, b); }
Expr max(Expr a, Expr b) { return apply(Op::max, a, b); }
Expr min(Expr a, double b) { return min(a, a.like(b)); }
Expr max(Expr a, double b) { return max(a, a.like(b)); }

Expr is_nan(Expr a) {
  if (is_half(a.dtype())) a = a.to(DType::f32);
  return a != a;
}

}  // namespace smelt::loops
