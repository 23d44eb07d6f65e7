#include "loops/random/random_values.h"

#include <algorithm>
#include <cmath>

namespace smelt::loops {
namespace {

const std::vector<Op> kFunctions = {
    Op::sqrt,  Op::rsqrt, Op::exp,     Op::exp2, Op::expm1, Op::log,   Op::log2,
    Op::log10, Op::log1p, Op::sin,     Op::cos,  Op::tan,   Op::asin,  Op::acos,
    Op::atan,  Op::sinh,  Op::cosh,    Op::tanh, Op::asinh, Op::acosh, Op::atanh,
    Op::erf,   Op::erfc,  Op::sigmoid, Op::pow,  Op::atan2, Op::div};
const std::vector<Op> kExactOps = {Op::add,   Op::add,  Op::sub,   Op::mul,   Op::mul,
                                   Op::min,   Op::max,  Op::mod,   Op::neg,   Op::abs,
                                   Op::floor, Op::ceil, Op::round, Op::trunc, Op::copysign};
const std::vector<Op> kIntegerOps = {Op::add,    Op::sub,     Op::mul,        Op::div,
                                     Op::mod,    Op::min,     Op::max,        Op::bit_and,
                                     Op::bit_or, Op::bit_xor, Op::shift_left, Op::shift_right,
                                     Op::neg,    Op::abs,     Op::bit_not};
const std::vector<Op> kBooleanOps = {Op::add,     Op::mul,    Op::min,     Op::max,
                                     Op::bit_and, Op::bit_or, Op::bit_xor, Op::lt,
                                     Op::le,      Op::eq,     Op::ne,      Op::bit_not};
const std::vector<DType> kTypes = {DType::f32, DType::f32, DType::f32, DType::f32,
                                   DType::f64, DType::i64, DType::i32, DType::i16,
                                   DType::i8,  DType::u8,  DType::b8,  DType::b8};

int significant_bits(DType dtype) { return dtype == DType::f64 ? 53 : 24; }

bool is_representable(double most, int grid, DType dtype) {
  return std::ldexp(most, -grid) < std::ldexp(1.0, significant_bits(dtype)) && grid > -60;
}

double most_of(DType dtype) { return std::ldexp(1.0, 8 * bytes_of(dtype)); }

bool asks(Op op) {
  return op == Op::mod || op == Op::floor || op == Op::ceil || op == Op::round || op == Op::trunc ||
         op == Op::copysign;
}

}  // namespace

void RandomValues::begin_stage(bool inner) {
  builder_.begin_stage(inner);
  if (inner_) values_.resize(outer_values_);
  for (RandomValue& value : reduced_) values_.push_back(value);
  reduced_.clear();
  outer_values_ = values_.size();
  inner_ = inner;
}

RandomValue RandomValues::any() {
  if (values_.empty()) return number(random_.one_of(kTypes));
  // The later ones more often, so that chains get long.
  int64_t count = static_cast<int64_t>(values_.size());
  return values_[std::max(random_.below(count), random_.below(count))];
}

RandomValue RandomValues::any_exact() {
  for (int attempt = 0; attempt < 8; ++attempt) {
    RandomValue value = any();
    if (value.exact) return value;
  }
  return number(random_.one_of(kTypes));
}

RandomValue RandomValues::number(DType dtype) {
  if (dtype == DType::b8)
    return {{&builder_, builder_.constant(dtype, random_.below(2))}, 1, 0, true};
  if (is_floating(dtype)) {
    double number = static_cast<double>(random_.between(-32, 32)) / 8;
    return {{&builder_, builder_.constant(dtype, number)}, 4, -3, true};
  }
  int64_t low = dtype == DType::u8 ? 0 : -20;
  return {{&builder_, builder_.constant(dtype, random_.between(low, 20))}, 20, 0, true};
}

// Keeps what is known of a result, and the result itself from growing.
RandomValue RandomValues::result(Expr expr, double most, int grid, bool exact) {
  RandomValue value{expr, most, grid, exact};
  if (!is_floating(expr.dtype())) return value;
  value.exact = exact && is_representable(most, grid, expr.dtype());
  return most > 1e4 ? scaled(value, 1024) : value;
}

RandomValue RandomValues::scaled(RandomValue value, double most) {
  if (value.most <= most) return value;
  // By a power of two, which is exact.
  int exponent = std::ilogb(most / value.most) - 1;
  return {value.expr * std::ldexp(1.0, exponent), std::ldexp(value.most, exponent),
          value.grid + exponent, value.exact && value.grid + exponent > -60};
}

RandomValue RandomValues::floating(RandomValue value, DType dtype) {
  DType from = value.expr.dtype();
  if (from == dtype) return value;
  return result(value.expr.to(dtype), value.most, value.grid, value.exact);
}

RandomValue RandomValues::integer(RandomValue value, DType dtype) {
  DType from = value.expr.dtype();
  if (from == dtype) return value;
  if (!is_floating(from))
    return {value.expr.to(dtype),
            value.most < most_of(dtype) / 2 && dtype != DType::u8 ? value.most : most_of(dtype), 0,
            true};
  if (is_half(from)) value = floating(value, DType::f32);
  // Out of range it would be undefined; so would be NaN.
  Expr x = select(is_nan(value.expr), 0.0, value.expr);
  x = max(min(x, 100), dtype == DType::u8 ? 0 : -100);
  return {x.to(dtype), 100, 0, true};
}

RandomValue RandomValues::of(DType dtype, bool exact) {
  if (random_.chance(8)) return number(dtype);
  if (dtype == DType::b8) return boolean();
  if (!is_floating(dtype)) return integer(any_exact(), dtype);
  RandomValue value = floating(exact ? any_exact() : any(), dtype);
  return exact && !value.exact ? number(dtype) : value;
}

RandomValue RandomValues::boolean() {
  RandomValue value = any_exact();
  if (value.expr.dtype() == DType::b8) return value;
  if (random_.chance(30)) return {value.expr.to(DType::b8), 1, 0, true};
  DType dtype = value.expr.dtype();
  if (is_half(dtype)) value = floating(value, dtype = DType::f32);
  RandomValue other = of(dtype, true);
  Op op = random_.one_of<Op>({Op::lt, Op::le, Op::eq, Op::ne});
  return {apply(op, value.expr, other.expr), 1, 0, true};
}

void RandomValues::compute() {
  if (draws_ && random_.chance(20)) return draw();
  DType dtype = random_.one_of(kTypes);
  if (random_.chance(10)) {
    if (dtype == DType::b8) dtype = DType::f32;
    RandomValue yes = of(dtype, false), no = of(dtype, false);
    add({select(boolean().expr, yes.expr, no.expr), std::max(yes.most, no.most),
         std::min(yes.grid, no.grid), yes.exact && no.exact});
    return;
  }
  if (dtype == DType::b8)
    compute_boolean();
  else if (is_floating(dtype))
    compute_floating(dtype);
  else
    compute_integer(dtype);
}

void RandomValues::draw() {
  const Val key = of(DType::i64, true).expr.value, stream = of(DType::i64, true).expr.value;
  const Val place = of(DType::i64, true).expr.value;
  if (random_.chance(70))
    return add(
        {{&builder_, builder_.random(Op::random_bits, key, stream, place)}, 0x1p32, 0, true});
  add({{&builder_, builder_.random(Op::random_normal, key, stream, place)}, 8, 0, false});
}

void RandomValues::compute_boolean() {
  Op op = random_.one_of(kBooleanOps);
  RandomValue a = boolean();
  if (op == Op::bit_not) return add({!a.expr, 1, 0, true});
  add({apply(op, a.expr, boolean().expr), 1, 0, true});
}

void RandomValues::compute_integer(DType dtype) {
  Op op = random_.one_of(kIntegerOps);
  RandomValue a = of(dtype, true);
  double most = most_of(dtype);
  if (facts_of(op).arguments == 1) return add({apply(op, a.expr), most, 0, true});
  RandomValue b = of(dtype, true);
  bool divides = op == Op::div || op == Op::mod;
  // A zero reports failure, and then nothing else is looked at: not too often.
  if (divides && !random_.chance(1)) b.expr = b.expr | b.expr.like(1);
  add({apply(op, a.expr, b.expr), most, 0, true});
}

void RandomValues::compute_floating(DType dtype) {
  if (random_.chance(10)) {
    DType half = random_.chance(50) ? DType::f16 : DType::bf16;
    RandomValue value = of(dtype, true);
    return add(
        {value.expr.to(half), value.most * 1.01, value.grid, value.exact && value.grid > -8});
  }
  if (random_.chance(55))
    compute_exactly(dtype);
  else
    compute_function(dtype);
}

void RandomValues::compute_exactly(DType dtype) {
  Op op = random_.one_of(kExactOps);
  RandomValue a = of(dtype, asks(op));
  if (facts_of(op).arguments == 1) {
    bool rounds = op != Op::neg && op != Op::abs;
    return add(
        result(apply(op, a.expr), a.most + rounds, rounds ? std::max(a.grid, 0) : a.grid, a.exact));
  }
  RandomValue b = of(dtype, asks(op));
  bool exact = a.exact && b.exact;
  if (op == Op::mul) return add(result(a.expr * b.expr, a.most * b.most, a.grid + b.grid, exact));
  // Which zero a reduction to the least or most gives is open, and copysign would see it.
  if (op == Op::copysign) b.expr = select(b.expr == 0.0, 0.5, b.expr);
  double most = op == Op::add || op == Op::sub ? a.most + b.most
                : op == Op::copysign           ? a.most
                                               : std::max(a.most, b.most);
  add(result(apply(op, a.expr, b.expr), most, std::min(a.grid, b.grid), exact));
}

RandomValue RandomValues::in_domain(Op op, RandomValue x) {
  // An error in the argument must not grow much.
  double most = x.exact ? 8 : 2;
  switch (op) {
    case Op::asin:
    case Op::acos:
    case Op::atanh: return scaled(x, 0.9);
    case Op::tan: return scaled(x, 1);
    case Op::log:
    case Op::log2:
    case Op::log10:
    case Op::sqrt:
    case Op::rsqrt:
      // Outside of the domain too: NaN and infinities are the same everywhere.
      if (x.exact && x.grid >= -3 && random_.chance(30) && op != Op::rsqrt) return scaled(x, 1024);
      x = scaled(x, 64);
      return {abs(x.expr) + 0.5, x.most + 0.5, -60, false};
    case Op::log1p: x = scaled(x, 64); return {abs(x.expr), x.most, x.grid, x.exact};
    case Op::acosh: x = scaled(x, 64); return {abs(x.expr) + 1.25, x.most + 1.25, -60, false};
    default: return scaled(x, most);
  }
}

void RandomValues::compute_function(DType dtype) {
  Op op = random_.one_of(kFunctions);
  RandomValue a = in_domain(op, of(dtype, false));
  if (facts_of(op).arguments == 1) {
    bool grows =
        op == Op::exp || op == Op::exp2 || op == Op::expm1 || op == Op::sinh || op == Op::cosh;
    return add(
        result(apply(op, a.expr), grows ? std::exp(a.most) : std::max(a.most, 8.0), 0, false));
  }
  RandomValue b = scaled(of(dtype, false), 2);
  if (op == Op::pow) return add(result(pow(abs(scaled(a, 2).expr) + 0.5, b.expr), 8, 0, false));
  // Away from 0, where a quotient or an angle would jump.
  add(result(apply(op, a.expr, abs(b.expr) + 0.5), 2 * a.most + 2, 0, false));
}

void RandomValues::reduce(int64_t points) {
  std::vector<Reduction> choices = {Reduction::sum,    Reduction::sum, Reduction::product,
                                    Reduction::min,    Reduction::max, Reduction::argmin,
                                    Reduction::argmax, Reduction::any, Reduction::all};
  Reduction reduction = random_.one_of(choices);
  auto reduced = [&](const RandomValue& value) {
    return Expr{&builder_, builder_.reduce(reduction, value.expr.value)};
  };
  if (reduction == Reduction::any || reduction == Reduction::all) {
    reduced_.push_back({reduced(boolean()), 1, 0, true});
    return;
  }
  RandomValue value = gives_position(reduction) ? any_exact() : any();
  if (is_half(value.expr.dtype())) value = floating(value, DType::f32);
  if (gives_position(reduction)) {
    reduced_.push_back({reduced(value), static_cast<double>(points), 0, true});
    return;
  }
  DType dtype = value.expr.dtype();
  if (!is_floating(dtype)) {
    reduced_.push_back({reduced(value), dtype == DType::b8 ? 1 : most_of(dtype), 0, true});
  } else if (reduction == Reduction::sum) {
    double most = value.most * static_cast<double>(std::max<int64_t>(points, 1));
    bool exact = value.exact && is_representable(most, value.grid, dtype);
    reduced_.push_back({reduced(value), most, value.grid, exact});
  } else if (reduction == Reduction::product) {
    reduced_.push_back({reduced(scaled(value, 1)), 1, 0, false});
  } else {
    reduced_.push_back({reduced(value), value.most, value.grid, value.exact});
  }
}

void RandomValues::scan(int64_t points) {
  const Reduction reduction = random_.one_of(
      std::vector{Reduction::sum, Reduction::product, Reduction::min, Reduction::max});
  RandomValue value = any();
  if (is_half(value.expr.dtype())) value = floating(value, DType::f32);
  DType dtype = value.expr.dtype();
  if (is_floating(dtype) && reduction == Reduction::product) value = scaled(value, 1);
  const Expr scanned{&builder_, builder_.scan(reduction, value.expr.value)};
  if (!is_floating(dtype)) return add({scanned, dtype == DType::b8 ? 1 : most_of(dtype), 0, true});
  if (reduction == Reduction::product) return add(result(scanned, 1, 0, false));
  double most = value.most;
  if (reduction == Reduction::sum) most *= static_cast<double>(std::max<int64_t>(points, 1));
  add(result(scanned, most, value.grid, value.exact));
}

}  // namespace smelt::loops
