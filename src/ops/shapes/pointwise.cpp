// Arithmetic, comparisons, logic, powers: what TensorIterator computes element by element.
#include "ops/rules/elementwise.h"
#include "ops/rules/layout.h"
#include "ops/shapes/families.h"

namespace smelt {

Decision elementwise(ShapeQuery& q, const Elementwise& rule,
                     std::initializer_list<size_t> operands) {
  Iterated it;
  for (size_t i : operands) it.operands.push_back(q.tensor(i));
  if (Decision made = iterate(q, rule.iteration, it); !made) return made;
  if (rule.gives == Gives::boolean) it.result.dtype = DType::b8;
  q.push(std::move(it.result));
  return Decision::allow();
}

namespace {

// alpha of add and sub must not be of a higher category than the result.
Decision check_alpha(const ShapeQuery& q, size_t alpha) {
  const DType number = q.tensor(alpha).dtype;
  const DType dtype = q.results[0]->dtype;
  const bool fits = number == DType::b8   ? dtype == DType::b8
                    : is_complex(number)  ? is_complex(dtype)
                    : is_floating(number) ? category_of(dtype) >= Category::floating
                                          : true;
  if (!fits) return Decision::forbid("alpha is not of the result's category");
  return Decision::allow();
}

Decision add(ShapeQuery& q) {
  if (Decision made = binary<promotes(kAll)>(q); !made) return made;
  return check_alpha(q, 2);
}

Decision subtract(ShapeQuery& q) {
  if (q.tensor(0).dtype == DType::b8 || q.tensor(1).dtype == DType::b8) {
    return Decision::forbid("torch does not subtract bools");
  }
  return add(q);
}

Decision reverse_subtract(ShapeQuery& q) {
  if (q.tensor(0).dtype == DType::b8 || q.tensor(1).dtype == DType::b8) {
    return Decision::forbid("torch does not subtract bools");
  }
  if (Decision made = over<promotes(kAll), 1, 0>(q); !made) return made;
  return check_alpha(q, 2);
}

Decision divide_rounded(ShapeQuery& q) {
  if (q.is_none(2)) return binary<floats(kAll)>(q);
  return binary<promotes(kNumbers)>(q);
}

// Converted, unless it has that dtype already.
TensorType preserved_unless(SymbolTable& s, const TensorType& type, DType dtype) {
  return type.dtype == dtype ? type : preserved(s, type, dtype);
}

// abs, angle: a complex tensor gives a real one.
template <bool to_float>
Decision magnitude(ShapeQuery& q) {
  const TensorType self = q.tensor(0);
  if (!is_complex(self.dtype)) {
    return to_float ? unary<floats(kNoComplex)>(q) : unary<keeps(kNumbers)>(q);
  }
  if (!takes(kComplexes, self.dtype)) return Decision::forbid("no rule for this dtype");
  if (!to_float) {
    q.push(preserved(q.symbols(), self, real_of(self.dtype)));
    return Decision::allow();
  }
  q.push(fresh(real_of(self.dtype), self.device, self.sizes));
  return Decision::allow();
}

Decision power_of_tensor(ShapeQuery& q) {
  const TensorType self = q.tensor(0);
  const bool integers = takes(kIntegral, self.dtype);
  if (integers && q.arg(1).is<Size>() && q.integer(1) < 0) {
    return Decision::forbid("torch does not raise integers to negative powers");
  }
  const TensorType both[] = {self, q.tensor(1)};
  const std::optional<DType> dtype = result_type(both, q.default_float());
  if (!dtype || !takes(kNumbers | kComplexes, *dtype))
    return Decision::forbid("no rule for this dtype");
  Iterated it{{preserved_unless(q.symbols(), self, *dtype)}, {}};
  if (Decision made = iterate(q, {}, it); !made) return made;
  q.push(std::move(it.result));
  return Decision::allow();
}

// A number to the power of a tensor: the result is contiguous.
Decision power_of_number(ShapeQuery& q) {
  const TensorType exponent = q.tensor(1);
  const TensorType both[] = {q.tensor(0), exponent};
  const std::optional<DType> dtype = result_type(both, q.default_float());
  if (!dtype || !takes(kNumbers | kComplexes, *dtype))
    return Decision::forbid("no rule for this dtype");
  q.push(fresh(*dtype, exponent.device, exponent.sizes));
  return Decision::allow();
}

Decision heaviside(ShapeQuery& q) {
  if (q.tensor(0).dtype != q.tensor(1).dtype)
    return Decision::forbid("the operands differ in dtype");
  return binary<promotes(kNoComplex)>(q);
}

Decision where(ShapeQuery& q, TensorType self, TensorType other) {
  SymbolTable& s = q.symbols();
  TensorType condition = q.tensor(0);
  if (condition.dtype != DType::b8) return Decision::forbid("the condition is no bool tensor");
  const TensorType both[] = {self, other};
  const std::optional<DType> dtype = result_type(both, q.default_float());
  if (!dtype || !takes(kAll, *dtype)) return Decision::forbid("no rule for this dtype");
  // All three are brought to the device and dtype of the result, before they are iterated over.
  Device device = condition.device;
  for (const TensorType* operand : {&self, &other}) {
    if (device.is_cpu()) device = operand->device;
  }
  std::vector<TensorType> operands;
  for (TensorType* operand : {&condition, &self, &other}) {
    if (operand->device != device && operand->rank() > 0) {
      return Decision::forbid("the operands are on different devices");
    }
    operand->device = device;
    if (operand != &condition) *operand = preserved_unless(s, *operand, *dtype);
    operands.push_back(std::move(*operand));
  }
  std::optional<Sizes> sizes = broadcast_all(s, operands);
  if (!sizes) return Decision::forbid("the operands' sizes do not broadcast");
  Sizes strides = iterated_strides(s, operands, *sizes);
  q.push(fresh(*dtype, device, std::move(*sizes), std::move(strides)));
  return Decision::allow();
}

Decision where_tensors(ShapeQuery& q) { return where(q, q.tensor(1), q.tensor(2)); }

// A number beside a tensor becomes a plain 0-dim tensor of their common dtype.
Decision where_number(ShapeQuery& q) {
  TensorType self = q.tensor(1), other = q.tensor(2);
  const TensorType both[] = {self, other};
  const std::optional<DType> dtype = result_type(both, q.default_float());
  if (!dtype) return Decision::forbid("no common dtype");
  for (TensorType* operand : {&self, &other}) {
    operand->wrapped_number = false;
    *operand = preserved_unless(q.symbols(), *operand, *dtype);
  }
  return where(q, self, other);
}

// clamp with numbers: floats keep their dtype, integers are promoted with the bounds.
Decision clamp(ShapeQuery& q, std::initializer_list<size_t> bounds) {
  const TensorType self = q.tensor(0);
  std::vector<TensorType> all = {self};
  for (size_t i : bounds) {
    if (q.is_none(i)) continue;
    all.push_back(q.tensor(i));
    if (is_complex(all.back().dtype)) return Decision::forbid("a bound is complex");
  }
  if (all.size() == 1) return Decision::forbid("no bound is given");
  std::optional<DType> dtype = self.dtype;
  if (!is_floating(self.dtype)) dtype = result_type(all, q.default_float());
  if (!dtype || !takes(kNumbers, *dtype)) return Decision::forbid("no rule for this dtype");
  Iterated it{{preserved_unless(q.symbols(), self, *dtype)}, {}};
  if (Decision made = iterate(q, {.takes = kNumbers}, it); !made) return made;
  q.push(std::move(it.result));
  return Decision::allow();
}

Decision clamp_both(ShapeQuery& q) { return clamp(q, {1, 2}); }
Decision clamp_one(ShapeQuery& q) { return clamp(q, {1}); }

Decision clamp_tensors(ShapeQuery& q) {
  if (is_complex(q.tensor(0).dtype))
    return Decision::forbid("torch does not clamp complex tensors");
  constexpr Elementwise rule = same_device(promotes(kNumbers));
  if (!q.is_none(1) && !q.is_none(2)) return ternary<rule>(q);
  if (!q.is_none(1)) return over<rule, 0, 1>(q);
  if (!q.is_none(2)) return over<rule, 0, 2>(q);
  return Decision::forbid("no bound is given");
}

Decision lerp_number(ShapeQuery& q) {
  if (q.tensor(0).dtype != q.tensor(1).dtype)
    return Decision::forbid("the operands differ in dtype");
  return binary<promotes(kDifferentiable)>(q);
}

Decision lerp_tensor(ShapeQuery& q) {
  if (q.tensor(0).dtype != q.tensor(1).dtype)
    return Decision::forbid("the operands differ in dtype");
  if (q.tensor(2).rank() > 0) return ternary<keeps(kDifferentiable)>(q);
  const DType dtype = q.tensor(0).dtype;
  if (Decision made = ternary<promotes(kDifferentiable)>(q); !made) return made;
  if (q.results[0]->dtype != dtype) return Decision::forbid("the weight is of a higher dtype");
  return Decision::allow();
}

Decision addcdiv(ShapeQuery& q) {
  if (takes(kIntegral, q.tensor(1).dtype) && takes(kIntegral, q.tensor(2).dtype)) {
    return Decision::forbid("torch does not divide integers here");
  }
  return ternary<same_device(promotes(kDifferentiable))>(q);
}

TensorType wrapped_float() {
  TensorType type;
  type.dtype = DType::f64;
  type.wrapped_number = true;
  return type;
}

// Infinity tests of integers are constants in the layout of the input.
template <Kinds tested>
Decision is_special(ShapeQuery& q) {
  const TensorType self = q.tensor(0);
  if (takes(kIntegral, self.dtype)) {
    q.push(preserved(q.symbols(), self, DType::b8));
    return Decision::allow();
  }
  if (is_complex(self.dtype)) {
    // Either part is: both are views of every other number.
    TensorType part = self;
    part.dtype = real_of(self.dtype);
    for (Size& stride : part.strides) stride = stride * 2;
    Iterated it{{part}, {}};
    if (Decision made = iterate(q, {}, it); !made) return made;
    it.result.dtype = DType::b8;
    q.push(std::move(it.result));
    return Decision::allow();
  }
  // abs(self) == infinity: the number makes the second step iterate the slow way.
  if (Decision made = unary<keeps(tested)>(q); !made) return made;
  Iterated it{{*q.results[0], wrapped_float()}, {}};
  if (Decision made = iterate(q, {}, it); !made) return made;
  it.result.dtype = DType::b8;
  q.results[0] = std::move(it.result);
  return Decision::allow();
}

Decision polygamma(ShapeQuery& q) {
  if (q.integer(0) < 0) return Decision::forbid("the order is negative");
  return over<floats(kFloats), 1>(q);
}

// Written into an empty_like of the input.
Decision nan_to_num(ShapeQuery& q) {
  if (!takes(kAll, q.tensor(0).dtype)) return Decision::forbid("no rule for this dtype");
  q.push(preserved(q.symbols(), q.tensor(0)));
  return Decision::allow();
}

// Computed by mul into an empty_like.
Decision degrees(ShapeQuery& q) {
  const TensorType self = q.tensor(0);
  if (!takes(kNoComplex, self.dtype)) return Decision::forbid("no rule for this dtype");
  q.push(preserved(q.symbols(), self, floating_of(self.dtype, q.default_float())));
  return Decision::allow();
}

Decision complex_from_parts(ShapeQuery& q) {
  if (q.tensor(0).dtype == DType::bf16) return Decision::forbid("no complex numbers of bf16");
  if (Decision made = binary<same_device(keeps(kFloats))>(q); !made) return made;
  q.results[0]->dtype = *complex_of(q.results[0]->dtype);
  return Decision::allow();
}

// ldexp(self, other): self times a power of two.
Decision ldexp(ShapeQuery& q) {
  const TensorType self = q.tensor(0), exponent = q.tensor(1);
  // Versions of PyTorch differ in the dtype.
  if (takes(kHalves, self.dtype) && takes(kIntegral, exponent.dtype))
    return Decision::forbid("an integer power for a half");
  if (exponent.dtype == DType::b8 || (is_complex(self.dtype) && takes(kHalves, exponent.dtype)))
    return Decision::forbid("no rule for this power");
  const TensorType both[] = {wrapped_float(), exponent};
  const std::optional<DType> dtype = result_type(both, q.default_float());
  if (!dtype) return Decision::forbid("no rule for this dtype");
  Iterated it{{self, fresh(*dtype, exponent.device, exponent.sizes)}, {}};
  if (Decision made = iterate(q, {}, it); !made) return made;
  q.push(std::move(it.result));
  return Decision::allow();
}

constexpr Kinds kFloatOrComplex = kDifferentiable;

constexpr OpRow kRows[] = {
    // One operand.
    {"aten::abs", magnitude<false>},
    {"aten::angle", magnitude<true>},
    {"aten::acos", unary<floats(kFloatOrComplex)>},
    {"aten::acosh", unary<floats(kFloatOrComplex)>},
    {"aten::asin", unary<floats(kFloatOrComplex)>},
    {"aten::asinh", unary<floats(kFloatOrComplex)>},
    {"aten::atan", unary<floats(kFloatOrComplex)>},
    {"aten::atanh", unary<floats(kFloatOrComplex)>},
    {"aten::bitwise_not", unary<keeps(kIntegral)>},
    {"aten::ceil", unary<keeps(kNumbers)>},
    {"aten::cos", unary<floats(kFloatOrComplex)>},
    {"aten::cosh", unary<floats(kFloatOrComplex)>},
    {"aten::deg2rad", degrees},
    {"aten::rad2deg", degrees},
    {"aten::digamma", unary<floats(kFloats)>},
    {"aten::erf", unary<floats(kFloats)>},
    {"aten::erfc", unary<floats(kFloats)>},
    {"aten::erfinv", unary<floats(kFloats)>},
    {"aten::exp", unary<floats(kFloatOrComplex)>},
    {"aten::exp2", unary<floats(kFloatOrComplex)>},
    {"aten::expm1", unary<floats(kFloatOrComplex)>},
    {"aten::floor", unary<keeps(kNumbers)>},
    {"aten::frac", unary<keeps(kFloats)>},
    {"aten::i0", unary<floats(kFloats)>},
    {"aten::isinf", is_special<kFloats>},
    {"aten::isnan", unary<tests(kAll)>},
    {"aten::isneginf", unary<tests(kNoComplex)>},
    {"aten::isposinf", unary<tests(kNoComplex)>},
    {"aten::lgamma", unary<floats(kFloats)>},
    {"aten::log", unary<floats(kFloatOrComplex)>},
    {"aten::log10", unary<floats(kFloatOrComplex)>},
    {"aten::log1p", unary<floats(kFloatOrComplex)>},
    {"aten::log2", unary<floats(kFloatOrComplex)>},
    {"aten::logical_not", unary<tests(kAll)>},
    {"aten::logit", unary<floats(kFloats)>},
    {"aten::nan_to_num", nan_to_num},
    {"aten::neg", unary<keeps(kNumbers | kComplexes)>},
    {"aten::polygamma", polygamma},
    {"aten::reciprocal", unary<floats(kFloatOrComplex)>},
    {"aten::round", unary<keeps(kNumbers)>},
    {"aten::round.decimals", unary<keeps(kFloats)>},
    {"aten::rsqrt", unary<floats(kFloatOrComplex)>},
    {"aten::sgn", unary<keeps(kAll)>},
    {"aten::sigmoid", unary<floats(kFloatOrComplex)>},
    {"aten::sign", unary<keeps(kNoComplex)>},
    {"aten::signbit", unary<tests(kNoComplex)>},
    {"aten::sin", unary<floats(kFloatOrComplex)>},
    {"aten::sinc", unary<floats(kFloatOrComplex)>},
    {"aten::sinh", unary<floats(kFloatOrComplex)>},
    {"aten::special_entr", unary<floats(kFloats)>},
    {"aten::special_erfcx", unary<floats(kReals)>},
    {"aten::special_i0e", unary<floats(kFloats)>},
    {"aten::special_i1", unary<floats(kFloats)>},
    {"aten::special_i1e", unary<floats(kFloats)>},
    {"aten::special_log_ndtr", unary<floats(kReals)>},
    {"aten::special_ndtri", unary<floats(kReals)>},
    {"aten::sqrt", unary<floats(kFloatOrComplex)>},
    {"aten::tan", unary<floats(kFloatOrComplex)>},
    {"aten::tanh", unary<floats(kFloatOrComplex)>},
    {"aten::trunc", unary<keeps(kNumbers)>},
    // Two operands, one of which may be a number.
    {"aten::add.Scalar", add},
    {"aten::add.Tensor", add},
    {"aten::atan2", binary<floats(kFloats)>},
    {"aten::bitwise_and.Scalar", binary<promotes(kIntegral)>},
    {"aten::bitwise_and.Scalar_Tensor", binary<promotes(kIntegral)>},
    {"aten::bitwise_and.Tensor", binary<promotes(kIntegral)>},
    {"aten::bitwise_left_shift.Scalar_Tensor", binary<promotes(kInts)>},
    {"aten::bitwise_left_shift.Tensor", binary<promotes(kInts)>},
    {"aten::bitwise_left_shift.Tensor_Scalar", binary<promotes(kInts)>},
    {"aten::bitwise_or.Scalar", binary<promotes(kIntegral)>},
    {"aten::bitwise_or.Scalar_Tensor", binary<promotes(kIntegral)>},
    {"aten::bitwise_or.Tensor", binary<promotes(kIntegral)>},
    {"aten::bitwise_right_shift.Scalar_Tensor", binary<promotes(kInts)>},
    {"aten::bitwise_right_shift.Tensor", binary<promotes(kInts)>},
    {"aten::bitwise_right_shift.Tensor_Scalar", binary<promotes(kInts)>},
    {"aten::bitwise_xor.Scalar", binary<promotes(kIntegral)>},
    {"aten::bitwise_xor.Scalar_Tensor", binary<promotes(kIntegral)>},
    {"aten::bitwise_xor.Tensor", binary<promotes(kIntegral)>},
    {"aten::complex", complex_from_parts},
    {"aten::copysign.Scalar", binary<floats(kFloats)>},
    {"aten::copysign.Tensor", binary<floats(kFloats)>},
    {"aten::div.Scalar", binary<floats(kFloatOrComplex)>},
    {"aten::div.Scalar_mode", divide_rounded},
    {"aten::div.Tensor", binary<floats(kFloatOrComplex)>},
    {"aten::div.Tensor_mode", divide_rounded},
    {"aten::eq.Scalar", binary<tests(kAll)>, {.compares = Comparison::equal}},
    {"aten::eq.Tensor", binary<tests(kAll)>, {.compares = Comparison::equal}},
    {"aten::floor_divide", binary<promotes(kNumbers)>},
    {"aten::floor_divide.Scalar", binary<promotes(kNumbers)>},
    {"aten::fmax", binary<promotes(kNoComplex)>},
    {"aten::fmin", binary<promotes(kNoComplex)>},
    {"aten::fmod.Scalar", binary<promotes(kNumbers)>},
    {"aten::fmod.Tensor", binary<promotes(kNumbers)>},
    {"aten::gcd", binary<promotes(kInts)>},
    {"aten::ge.Scalar", binary<tests(kNoComplex)>, {.compares = Comparison::below}},
    {"aten::ge.Tensor", binary<tests(kNoComplex)>},
    {"aten::gt.Scalar", binary<tests(kNoComplex)>, {.compares = Comparison::above}},
    {"aten::gt.Tensor", binary<tests(kNoComplex)>},
    {"aten::heaviside", heaviside},
    {"aten::hypot", binary<promotes(kFloats)>},
    {"aten::igamma", binary<promotes(kFloats)>},
    {"aten::igammac", binary<promotes(kFloats)>},
    {"aten::lcm", binary<promotes(kInts)>},
    {"aten::ldexp.Tensor", ldexp},
    {"aten::le.Scalar", binary<tests(kNoComplex)>, {.compares = Comparison::above}},
    {"aten::le.Tensor", binary<tests(kNoComplex)>},
    {"aten::logaddexp", binary<promotes(kFloatOrComplex)>},
    {"aten::logaddexp2", binary<promotes(kFloats)>},
    {"aten::logical_and", binary<tests(kAll)>},
    {"aten::logical_or", binary<tests(kAll)>},
    {"aten::logical_xor", binary<tests(kAll)>},
    {"aten::lt.Scalar", binary<tests(kNoComplex)>, {.compares = Comparison::below}},
    {"aten::lt.Tensor", binary<tests(kNoComplex)>},
    {"aten::maximum", binary<promotes(kNoComplex)>},
    {"aten::minimum", binary<promotes(kNoComplex)>},
    {"aten::mul.Scalar", binary<promotes(kAll)>},
    {"aten::mul.Tensor", binary<promotes(kAll)>},
    {"aten::ne.Scalar", binary<tests(kAll)>, {.compares = Comparison::unequal}},
    {"aten::ne.Tensor", binary<tests(kAll)>, {.compares = Comparison::unequal}},
    {"aten::nextafter", binary<promotes(kFloats)>},
    {"aten::polar", complex_from_parts},
    {"aten::pow.Scalar", power_of_number},
    {"aten::pow.Tensor_Scalar", power_of_tensor},
    {"aten::pow.Tensor_Tensor", binary<promotes(kNumbers | kComplexes)>},
    {"aten::remainder.Scalar", binary<promotes(kNumbers)>},
    {"aten::remainder.Scalar_Tensor", binary<promotes(kNumbers)>},
    {"aten::remainder.Tensor", binary<promotes(kNumbers)>},
    {"aten::rsub.Scalar", reverse_subtract},
    {"aten::rsub.Tensor", reverse_subtract},
    {"aten::special_chebyshev_polynomial_t.n_scalar", binary<floats(kReals)>},
    {"aten::special_chebyshev_polynomial_t.x_scalar", binary<floats(kReals)>},
    {"aten::special_chebyshev_polynomial_u.n_scalar", binary<floats(kReals)>},
    {"aten::special_chebyshev_polynomial_u.x_scalar", binary<floats(kReals)>},
    {"aten::special_chebyshev_polynomial_v.n_scalar", binary<floats(kReals)>},
    {"aten::special_chebyshev_polynomial_v.x_scalar", binary<floats(kReals)>},
    {"aten::special_chebyshev_polynomial_w.n_scalar", binary<floats(kReals)>},
    {"aten::special_chebyshev_polynomial_w.x_scalar", binary<floats(kReals)>},
    {"aten::special_hermite_polynomial_h.n_scalar", binary<floats(kReals)>},
    {"aten::special_hermite_polynomial_h.x_scalar", binary<floats(kReals)>},
    {"aten::special_hermite_polynomial_he.n_scalar", binary<floats(kReals)>},
    {"aten::special_hermite_polynomial_he.x_scalar", binary<floats(kReals)>},
    {"aten::special_laguerre_polynomial_l.n_scalar", binary<floats(kReals)>},
    {"aten::special_laguerre_polynomial_l.x_scalar", binary<floats(kReals)>},
    {"aten::special_legendre_polynomial_p.n_scalar", binary<floats(kReals)>},
    {"aten::special_legendre_polynomial_p.x_scalar", binary<floats(kReals)>},
    {"aten::special_shifted_chebyshev_polynomial_t.n_scalar", binary<floats(kReals)>},
    {"aten::special_shifted_chebyshev_polynomial_t.x_scalar", binary<floats(kReals)>},
    {"aten::special_shifted_chebyshev_polynomial_u.n_scalar", binary<floats(kReals)>},
    {"aten::special_shifted_chebyshev_polynomial_u.x_scalar", binary<floats(kReals)>},
    {"aten::special_shifted_chebyshev_polynomial_v.n_scalar", binary<floats(kReals)>},
    {"aten::special_shifted_chebyshev_polynomial_v.x_scalar", binary<floats(kReals)>},
    {"aten::special_shifted_chebyshev_polynomial_w.n_scalar", binary<floats(kReals)>},
    {"aten::special_shifted_chebyshev_polynomial_w.x_scalar", binary<floats(kReals)>},
    {"aten::special_xlog1py", binary<floats(kFloats)>},
    {"aten::special_xlog1py.other_scalar", binary<floats(kFloats)>},
    {"aten::special_xlog1py.self_scalar", binary<floats(kFloats)>},
    {"aten::special_zeta", binary<floats(kReals)>},
    {"aten::special_zeta.other_scalar", binary<floats(kReals)>},
    {"aten::special_zeta.self_scalar", binary<floats(kReals)>},
    {"aten::sub.Scalar", subtract},
    {"aten::sub.Tensor", subtract},
    {"aten::xlogy.Scalar_Other", binary<floats(kFloats)>},
    {"aten::xlogy.Scalar_Self", binary<floats(kFloats)>},
    {"aten::xlogy.Tensor", binary<floats(kFloats)>},
    // Three operands.
    {"aten::addcdiv", addcdiv},
    {"aten::addcmul", ternary<promotes(kNumbers | kComplexes)>},
    {"aten::clamp", clamp_both},
    {"aten::clamp.Tensor", clamp_tensors},
    {"aten::clamp_max", clamp_one},
    {"aten::clamp_max.Tensor", binary<promotes(kNoComplex)>},
    {"aten::clamp_min", clamp_one},
    {"aten::clamp_min.Tensor", binary<promotes(kNoComplex)>},
    {"aten::lerp.Scalar", lerp_number},
    {"aten::lerp.Tensor", lerp_tensor},
    {"aten::where.Scalar", where_number},
    {"aten::where.ScalarOther", where_number},
    {"aten::where.ScalarSelf", where_number},
    {"aten::where.self", where_tensors},
};

}  // namespace

std::span<const OpRow> pointwise_rows() { return kRows; }

}  // namespace smelt
