// The words in which the elementary functions of vector_math.h are written: numbers, their bits and
// masks as C++ values whose operators write LLVM instructions. All are scalars or vectors of one
// lane count; a `double` beside one of them is a constant of its type.
//
// Rules for the functions written with these:
// - a*b + c is written fma(a, b, c), so that no contraction flag changes results;
// - numbers become integers by adding round_by (see there): fptosi of a NaN is poison;
// - at_most and at_least keep NaN and are one instruction on x86.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include <cstdint>
#include <span>

namespace smelt::vector_math {

struct Bits;

struct Num {
  llvm::IRBuilder<>* ir;
  llvm::Value* value;

  bool wide() const { return value->getType()->getScalarType()->isDoubleTy(); }
  Num number(double constant) const;  // of the same type
  Bits bits() const;
};

// The integers as wide as a Num: as its bits, or as whole numbers.
struct Bits {
  llvm::IRBuilder<>* ir;
  llvm::Value* value;

  bool wide() const { return value->getType()->getScalarSizeInBits() == 64; }
  Num as_number() const;  // these bits read as a floating number
};

struct Mask {
  llvm::IRBuilder<>* ir;
  llvm::Value* value;
};

// A Num or a constant that takes the type of the Num beside it.
struct Term {
  Term(const Num& num) : num(num) {}
  Term(double constant) : constant(constant) {}
  Num as(const Num& model) const { return num.value ? num : model.number(constant); }
  Num num{nullptr, nullptr};
  double constant = 0;
};

Num operator+(const Num& a, Term b);
Num operator-(const Num& a, Term b);
Num operator-(double a, const Num& b);
Num operator*(const Num& a, Term b);
Num operator/(const Num& a, Term b);
Num operator/(double a, const Num& b);
Num operator-(const Num& a);
Num fma(Term a, Term b, Term c);  // a*b + c with one rounding; one of them is a Num

Mask operator<(const Num& a, Term b);  // false if one is NaN, as the next two
Mask operator>(const Num& a, Term b);
Mask operator==(const Num& a, Term b);
Mask has_sign(const Num& a);  // the sign bit: also of -0
Mask operator&(const Mask& a, const Mask& b);
Mask operator|(const Mask& a, const Mask& b);
Mask operator^(const Mask& a, const Mask& b);
Mask operator!(const Mask& a);
Num select(const Mask& condition, Term yes, Term no);  // one of them is a Num

Num at_most(const Num& a, double limit);
Num at_least(const Num& a, double limit);
Num abs(const Num& a);
Num sqrt(const Num& a);
Num trunc(const Num& a);
Num copysign(const Num& magnitude, const Num& sign);

Bits operator+(const Bits& a, int64_t b);
Bits operator-(const Bits& a, const Bits& b);
Bits operator-(int64_t a, const Bits& b);
Bits operator&(const Bits& a, int64_t b);
Bits operator^(const Bits& a, const Bits& b);
Bits operator<<(const Bits& a, int by);
Bits operator>>(const Bits& a, int by);  // zeros come in
Mask is_odd(const Bits& a);

Num to_f64(const Num& a);  // of float
Num to_f32(const Num& a);  // of double

// x * 2^k, k a whole number, with one rounding and at any size of the result. One instruction,
// where there is one for vectors of x's type.
bool has_scale_by_exponent(const Num& x);
Num scale_by_exponent(const Num& x, const Num& k);

// coefficients[0] + coefficients[1]*x + ...
Num polynomial(const Num& x, std::span<const double> coefficients);

// The layout of a number: 23 or 52 bits of mantissa, exponents biased by 127 or 1023.
int mantissa_bits(const Num& x);
int exponent_bias(const Num& x);
// x + round_by(x), for |x| below 2^21 or 2^50, has the nearest whole number in its low bits (plus a
// small whole constant added to round_by); subtracting round_by gives that number back.
double round_by(const Num& x);

// A constant with twice the digits of a double: value + rest. high() + low() are the same of the
// type of x.
struct LongConstant {
  double value, rest;
  double high(const Num& x) const;
  double low(const Num& x) const;
};
inline constexpr LongConstant kLn2 = {0.6931471805599453, 2.3190468138462996e-17};
inline constexpr double kLog2E = 1.4426950408889634;

// What is chosen by the type of x.
inline int by_type(const Num& x, int f32, int f64) { return x.wide() ? f64 : f32; }
inline double by_type(const Num& x, double f32, double f64) { return x.wide() ? f64 : f32; }
inline std::span<const double> by_type(const Num& x, std::span<const double> f32,
                                       std::span<const double> f64) {
  return x.wide() ? f64 : f32;
}

}  // namespace smelt::vector_math
