// Instructions that need not be written: what constants give, and identities that are exact for
// every value, NaN and both zeros included. So x + 0.0 stays (of -0.0 it gives 0.0), and x - 0.0
// goes; x * 0 goes for integers only.
#include <cmath>

#include "loops/builder.h"
#include "loops/scalar.h"

namespace smelt::loops {
namespace {

// Every value of `from` is one of `to`.
bool is_lossless(DType from, DType to) {
  if (from == DType::b8) return true;
  if (from == DType::f16 || from == DType::bf16) return to == DType::f32 || to == DType::f64;
  if (from == DType::f32) return to == DType::f64;
  if (from == DType::f64 || to == DType::b8 || is_half(to)) return false;
  int from_bits = 8 * bytes_of(from) - (from == DType::u8 ? 0 : 1);
  int to_bits = to == DType::f64 ? 53 : to == DType::f32 ? 24 : 8 * bytes_of(to) - 1;
  return to != DType::u8 && from_bits <= to_bits;
}

bool is_rounding(Op op) {
  return op == Op::floor || op == Op::ceil || op == Op::round || op == Op::trunc;
}

// A power of two whose reciprocal is one as well, and neither is subnormal.
bool has_exact_reciprocal(double number, DType dtype) {
  int exponent;
  double fraction = std::frexp(std::fabs(number), &exponent);
  return fraction == 0.5 && std::abs(exponent) < (dtype == DType::f32 ? 120 : 1000);
}

Scalar scalar_of(const Inst& constant) { return {constant.number, constant.integer}; }

}  // namespace

const Inst* Builder::constant_at(Val value) const {
  if (value < 0) return nullptr;
  const Inst& inst = kernel_.insts[value];
  return inst.op == Op::constant ? &inst : nullptr;
}

// Exactly this number: 0.0 is not -0.0.
bool Builder::is_number(Val value, double number) const {
  const Inst* inst = constant_at(value);
  if (!inst) return false;
  if (!is_floating(inst->dtype)) return inst->integer == static_cast<int64_t>(number);
  return inst->number == number && std::signbit(inst->number) == std::signbit(number);
}

Val Builder::simpler(Op op, Val a, Val b) {
  if (Val value = fold_constants(op, a, b); value >= 0) return value;
  if (b < 0) return fold_unary(op, a);
  if (Val value = fold_index(op, a, b); value >= 0) return value;
  if (a == b) {
    if (Val value = fold_equal(op, a); value >= 0) return value;
  }
  auto fold = [&](Val x, Val y) {
    if (!constant_at(y)) return Val{-1};
    if (is_floating(dtype(x))) return fold_floating(op, x, y);
    return dtype(x) == DType::b8 ? fold_boolean(op, x, y) : fold_integral(op, x, y);
  };
  if (Val value = fold(a, b); value >= 0) return value;
  bool commutes = op == Op::add || op == Op::mul || op == Op::min || op == Op::max ||
                  op == Op::bit_and || op == Op::bit_or || op == Op::bit_xor || op == Op::eq ||
                  op == Op::ne;
  return commutes ? fold(b, a) : -1;
}

Val Builder::fold_constants(Op op, Val a, Val b) {
  const Inst *x = constant_at(a), *y = constant_at(b);
  if (!x || (b >= 0 && !y)) return -1;
  std::optional<Scalar> result = compute(op, x->dtype, scalar_of(*x), y ? scalar_of(*y) : Scalar{});
  if (!result) return -1;
  DType type = facts_of(op).typing == Typing::compare ? DType::b8 : x->dtype;
  return is_floating(type) ? constant(type, result->number) : constant(type, result->integer);
}

// Positions stay one index, so that strides can still be read off.
Val Builder::fold_index(Op op, Val a, Val b) {
  const Inst &x = kernel_.insts[a], &y = kernel_.insts[b];
  bool positional = (x.op == Op::index && (y.op == Op::index || y.op == Op::constant)) ||
                    (x.op == Op::constant && y.op == Op::index);
  if (!positional || dtype(a) != DType::i64) return -1;
  Index left = as_index(a), right = as_index(b);
  if (op == Op::add) return index(left + right);
  if (op == Op::sub) return index(left - right);
  if (op != Op::mul) return -1;
  if (right.is_constant()) return index(left * right.constant());
  if (left.is_constant()) return index(right * left.constant());
  return -1;
}

Val Builder::fold_floating(Op op, Val a, Val b) {
  double number = kernel_.insts[b].number;
  DType type = dtype(a);
  switch (op) {
    case Op::add: return is_number(b, -0.0) ? a : -1;
    case Op::sub: return is_number(b, 0.0) ? a : -1;
    case Op::mul: return number == 1 ? a : -1;
    case Op::div:
      if (number == 1) return a;
      if (!has_exact_reciprocal(number, type)) return -1;
      return this->op(Op::mul, a, constant(type, 1 / number));
    case Op::pow:
      if (number == 0) return constant(type, 1.0);
      return number == 1 ? a : -1;
    default: return -1;
  }
}

Val Builder::fold_integral(Op op, Val a, Val b) {
  int64_t number = kernel_.insts[b].integer;
  bool all_bits = number == wrap_to(dtype(a), -1);
  switch (op) {
    case Op::add:
    case Op::sub:
    case Op::bit_xor:
    case Op::shift_left:
    case Op::shift_right: return number == 0 ? a : -1;
    case Op::mul:
      if (number == 0) return b;
      return number == 1 ? a : -1;
    case Op::div: return number == 1 ? a : -1;
    case Op::mod: return number == 1 ? constant(dtype(a), int64_t{0}) : -1;
    case Op::bit_and:
      if (number == 0) return b;
      return all_bits ? a : -1;
    case Op::bit_or:
      if (all_bits) return b;
      return number == 0 ? a : -1;
    default: return -1;
  }
}

Val Builder::fold_boolean(Op op, Val a, Val b) {
  bool yes = kernel_.insts[b].integer != 0;
  switch (op) {
    case Op::add:
    case Op::max:
    case Op::bit_or: return yes ? b : a;
    case Op::mul:
    case Op::min:
    case Op::bit_and: return yes ? a : b;
    case Op::bit_xor:
    case Op::ne: return yes ? this->op(Op::bit_not, a) : a;
    case Op::eq: return yes ? a : this->op(Op::bit_not, a);
    default: return -1;
  }
}

Val Builder::fold_unary(Op op, Val a) {
  const Inst inst = kernel_.insts[a];
  if (inst.op == op && (op == Op::neg || op == Op::bit_not)) return inst.args[0];
  if (inst.op == op && op == Op::abs) return a;
  if (op == Op::abs && (inst.dtype == DType::b8 || inst.dtype == DType::u8)) return a;
  if (op == Op::abs && inst.op == Op::neg) return this->op(Op::abs, inst.args[0]);
  if (is_rounding(op) && is_rounding(inst.op)) return a;
  if (op == Op::bit_not && inst.op == Op::eq) return this->op(Op::ne, inst.args[0], inst.args[1]);
  if (op == Op::bit_not && inst.op == Op::ne) return this->op(Op::eq, inst.args[0], inst.args[1]);
  return -1;
}

Val Builder::fold_equal(Op op, Val a) {
  bool floating = is_floating(dtype(a));
  switch (op) {
    case Op::min:
    case Op::max:
    case Op::bit_and:
    case Op::bit_or: return a;
    case Op::add:
    case Op::mul: return dtype(a) == DType::b8 ? a : -1;
    case Op::sub:
    case Op::bit_xor: return floating ? -1 : constant(dtype(a), int64_t{0});
    case Op::lt: return constant(DType::b8, int64_t{0});
    case Op::ne: return floating ? -1 : constant(DType::b8, int64_t{0});
    case Op::eq:
    case Op::le: return floating ? -1 : constant(DType::b8, int64_t{1});
    default: return -1;
  }
}

Val Builder::fold_select(Val condition, Val yes, Val no) {
  if (yes == no) return yes;
  if (const Inst* inst = constant_at(condition)) return inst->integer ? yes : no;
  if (dtype(yes) == DType::b8 && constant_at(yes) && constant_at(no)) {
    if (is_number(yes, 1) && is_number(no, 0)) return condition;
    if (is_number(yes, 0) && is_number(no, 1)) return op(Op::bit_not, condition);
  }
  const Inst& inst = kernel_.insts[condition];
  return inst.op == Op::bit_not ? op(Op::select, inst.args[0], no, yes) : -1;
}

Val Builder::fold_cast(Val value, DType to) {
  const Inst inst = kernel_.insts[value];
  if (inst.dtype == to) return value;
  if (inst.op == Op::constant && !is_half(to)) {
    if (is_floating(inst.dtype) && !is_floating(to) && !fits_integer(inst.number, to) &&
        to != DType::b8)
      return -1;
    Scalar result = convert(scalar_of(inst), inst.dtype, to);
    return is_floating(to) ? constant(to, result.number) : constant(to, result.integer);
  }
  if (inst.op != Op::cast) return -1;
  Val source = inst.args[0];
  DType from = dtype(source);
  // A constant of half precision is a cast of its f32 value.
  if (const Inst* number = constant_at(source); number && is_half(inst.dtype) && to == DType::f32)
    if (round_to(inst.dtype, number->number) == number->number) return source;
  if (!is_lossless(from, inst.dtype)) return -1;
  if (from == to) return source;
  return is_half(from) || is_half(to) ? -1 : cast(source, to);
}

}  // namespace smelt::loops
