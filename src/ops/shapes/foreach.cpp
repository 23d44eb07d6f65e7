// Ops on lists of tensors: each item by the rule of the op on one tensor, and the fused optimizers.
#include "ops/rules/elementwise.h"
#include "ops/rules/layout.h"
#include "ops/shapes/families.h"

namespace smelt {
namespace {

size_t list_length(const ShapeQuery& q, size_t arg) {
  return q.arg(arg).is<ArgList>() ? q.arg(arg).get<ArgList>().size() : SIZE_MAX;
}

// Item i of an argument: of a list its i-th, of anything else the thing itself.
TensorType item(const ShapeQuery& q, size_t arg, size_t i) {
  const Arg& whole = q.arg(arg);
  const Arg& one = whole.is<ArgList>() ? whole.get<ArgList>()[i] : whole;
  if (one.is<Ref>()) return q.type(one.get<Ref>());
  const Arg only[] = {one};
  return ShapeQuery(only, {}, q.symbols(), q.default_float()).tensor(0);
}

// The lists have one length, at least 1.
bool lists_fit(const ShapeQuery& q, std::initializer_list<size_t> args) {
  const size_t length = list_length(q, *args.begin());
  if (length == SIZE_MAX || length == 0) return false;
  for (size_t arg : args) {
    const size_t other = list_length(q, arg);
    if (other != SIZE_MAX && other != length) return false;
  }
  return true;
}

// Do CUDA's kernels for whole lists take them (torch: can_use_fast_route)? All tensors are of one
// dtype and device and without gaps, and those at one place of the lists have the same layout.
bool are_alike(ShapeQuery& q, std::initializer_list<size_t> args) {
  const TensorType first = item(q, *args.begin(), 0);
  for (size_t arg : args) {
    const size_t length = list_length(q, arg);
    for (size_t i = 0; length != SIZE_MAX && i < length; ++i) {
      const TensorType one = item(q, arg, i), same = item(q, *args.begin(), i);
      if (one.dtype != first.dtype || one.device != first.device || one.rank() != same.rank() ||
          !is_dense(q.symbols(), one) || !equal(q.symbols(), one.sizes, same.sizes))
        return false;
      for (int d = 0; d < one.rank(); ++d)
        if (!equal(q.symbols(), one.sizes[d], 1) &&
            !equal(q.symbols(), one.strides[d], same.strides[d]))
          return false;
    }
  }
  return true;
}

Decision each_item(ShapeQuery& q, const Elementwise& rule, std::initializer_list<size_t> args) {
  if (!lists_fit(q, args)) return Decision::forbid("the lists differ in length");
  const size_t length = list_length(q, *args.begin());
  std::vector<TensorType> results;
  bool keeps_dtype = true;
  for (size_t i = 0; i < length; ++i) {
    Iterated it;
    for (size_t arg : args) it.operands.push_back(item(q, arg, i));
    const TensorType self = it.operands[0];
    if (Decision made = iterate(q, rule.iteration, it); !made) return made;
    keeps_dtype &= it.result.dtype == self.dtype;
    results.push_back(std::move(it.result));
  }
  // CUDA's fast kernels write into an empty_like, the slow ones into what TensorIterator makes.
  if (!results[0].device.is_cpu() && keeps_dtype && are_alike(q, args))
    for (size_t i = 0; i < length; ++i)
      results[i] = preserved(q.symbols(), item(q, *args.begin(), i));
  for (TensorType& result : results) q.push(std::move(result));
  return Decision::allow();
}

template <Elementwise rule, size_t... args>
Decision each(ShapeQuery& q) {
  return each_item(q, rule, {args...});
}

// A number as exponent or bound leaves floats what they are.
template <size_t... numbers>
Decision each_float(ShapeQuery& q) {
  for (size_t arg : {numbers...}) {
    const Arg& whole = q.arg(arg);
    if (whole.is<std::complex<double>>()) return Decision::forbid("a complex number");
    if (!whole.is<ArgList>()) continue;
    if (list_length(q, arg) != list_length(q, 0))
      return Decision::forbid("the lists differ in length");
    for (const Arg& one : whole.get<ArgList>()) {
      if (one.is<std::complex<double>>()) return Decision::forbid("a complex number");
    }
  }
  return each_item(q, keeps(kFloats), {0});
}

// A list of fresh tensors like those of the argument.
template <size_t... args>
Decision lists_like(ShapeQuery& q) {
  for (size_t arg : {args...}) {
    for (const TensorType& type : q.tensors(arg)) q.push(preserved(q.symbols(), type));
  }
  return Decision::allow();
}

// _foreach_copy(self, src): each src written into a copy of self.
Decision copies(ShapeQuery& q) {
  if (!lists_fit(q, {0, 1})) return Decision::forbid("the lists differ in length");
  for (size_t i = 0; i < list_length(q, 0); ++i) {
    const TensorType self = item(q, 0, i), source = item(q, 1, i);
    if (!expandable(q.symbols(), source.sizes, self.sizes)) {
      return Decision::forbid("src does not broadcast");
    }
    if (is_empty(q.symbols(), self.sizes) && !self.offset.is(0)) {
      return Decision::forbid("an empty view");
    }
    q.push(exact_clone(q.symbols(), self));
  }
  return Decision::allow();
}

// _foreach_norm(self, ord, dtype): scalars.
Decision norms(ShapeQuery& q) {
  if (q.arg(1).is<std::complex<double>>()) return Decision::forbid("a complex order");
  for (const TensorType& type : q.tensors(0)) {
    const DType dtype = q.dtype(2).value_or(type.dtype);
    if (!takes(kDifferentiable, type.dtype) || promote(type.dtype, dtype) != dtype) {
      return Decision::forbid("no rule for this dtype");
    }
    if (is_empty(q.symbols(), type.sizes))
      return Decision::forbid("some norms of nothing do not exist");
    q.push(fresh(real_of(dtype), type.device, {}));
  }
  return Decision::allow();
}

Decision maxima(ShapeQuery& q) {
  for (const TensorType& type : q.tensors(0)) {
    if (!takes(kNoComplex, type.dtype)) return Decision::forbid("no rule for this dtype");
    if (is_empty(q.symbols(), type.sizes))
      return Decision::forbid("an empty tensor has no maximum");
    q.push(fresh_like(type, {}));
  }
  return Decision::allow();
}

// _amp_foreach_non_finite_check_and_unscale(self, found_inf, inv_scale)
Decision unscale(ShapeQuery& q) {
  for (size_t arg : {1, 2}) {
    const TensorType scalar = q.tensor(arg);
    if (scalar.dtype != DType::f32 || !equal(q.symbols(), scalar.numel(), 1))
      return Decision::forbid("not a scale");
  }
  if (Decision made = lists_like<0>(q); !made) return made;
  q.push(preserved(q.symbols(), q.tensor(1)));
  return Decision::allow();
}

// _amp_update_scale(self, growth_tracker, ...)
Decision update_scale(ShapeQuery& q) {
  for (size_t arg : {0, 1, 2}) {
    const TensorType scalar = q.tensor(arg);
    const DType dtype = arg == 1 ? DType::i32 : DType::f32;
    if (scalar.dtype != dtype || !equal(q.symbols(), scalar.numel(), 1))
      return Decision::forbid("not a scale");
  }
  for (size_t arg : {0, 1}) q.push(preserved(q.symbols(), q.tensor(arg)));
  return Decision::allow();
}

constexpr Kinds kCalculable = kNumbers | kComplexes;

constexpr OpRow kRows[] = {
    {"aten::_amp_foreach_non_finite_check_and_unscale", unscale},
    {"aten::_amp_update_scale", update_scale},
    {"aten::_foreach_abs", each<keeps(kFloats), 0>},
    {"aten::_foreach_add.List", each<promotes(kCalculable), 0, 1>},
    {"aten::_foreach_add.Scalar", each<promotes(kCalculable), 0, 1>},
    {"aten::_foreach_add.ScalarList", each<promotes(kCalculable), 0, 1>},
    {"aten::_foreach_add.Tensor", each<promotes(kCalculable), 0, 1>},
    {"aten::_foreach_addcdiv.Scalar", each<same_device(promotes(kFloats)), 0, 1, 2>},
    {"aten::_foreach_addcdiv.ScalarList", each<same_device(promotes(kFloats)), 0, 1, 2>},
    {"aten::_foreach_addcdiv.Tensor", each<same_device(promotes(kFloats)), 0, 1, 2>},
    {"aten::_foreach_addcmul.Scalar", each<promotes(kFloats), 0, 1, 2>},
    {"aten::_foreach_addcmul.ScalarList", each<promotes(kFloats), 0, 1, 2>},
    {"aten::_foreach_addcmul.Tensor", each<promotes(kFloats), 0, 1, 2>},
    {"aten::_foreach_ceil", each<keeps(kFloats), 0>},
    {"aten::_foreach_clamp_max.List", each<promotes(kFloats), 0, 1>},
    {"aten::_foreach_clamp_max.Scalar", each_float<1>},
    {"aten::_foreach_clamp_max.ScalarList", each_float<1>},
    {"aten::_foreach_clamp_min.List", each<promotes(kFloats), 0, 1>},
    {"aten::_foreach_clamp_min.Scalar", each_float<1>},
    {"aten::_foreach_clamp_min.ScalarList", each_float<1>},
    {"aten::_foreach_copy", copies},
    {"aten::_foreach_cos", each<floats(kFloats), 0>},
    {"aten::_foreach_div.List", each<floats(kDifferentiable), 0, 1>},
    {"aten::_foreach_div.Scalar", each<floats(kDifferentiable), 0, 1>},
    {"aten::_foreach_div.ScalarList", each<floats(kDifferentiable), 0, 1>},
    {"aten::_foreach_div.Tensor", each<floats(kDifferentiable), 0, 1>},
    {"aten::_foreach_exp", each<floats(kFloats), 0>},
    {"aten::_foreach_expm1", each<floats(kFloats), 0>},
    {"aten::_foreach_floor", each<keeps(kFloats), 0>},
    {"aten::_foreach_frac", each<keeps(kFloats), 0>},
    {"aten::_foreach_lerp.List", each<keeps(kFloats), 0, 1, 2>},
    {"aten::_foreach_lerp.Scalar", each<keeps(kFloats), 0, 1>},
    {"aten::_foreach_lerp.ScalarList", each<keeps(kFloats), 0, 1>},
    {"aten::_foreach_log", each<floats(kFloats), 0>},
    {"aten::_foreach_log1p", each<floats(kFloats), 0>},
    {"aten::_foreach_max", maxima},
    {"aten::_foreach_maximum.List", each<promotes(kFloats), 0, 1>},
    {"aten::_foreach_maximum.Scalar", each_float<1>},
    {"aten::_foreach_maximum.ScalarList", each_float<1>},
    {"aten::_foreach_minimum.List", each<promotes(kFloats), 0, 1>},
    {"aten::_foreach_minimum.Scalar", each_float<1>},
    {"aten::_foreach_minimum.ScalarList", each_float<1>},
    {"aten::_foreach_mul.List", each<promotes(kCalculable), 0, 1>},
    {"aten::_foreach_mul.Scalar", each<promotes(kCalculable), 0, 1>},
    {"aten::_foreach_mul.ScalarList", each<promotes(kCalculable), 0, 1>},
    {"aten::_foreach_mul.Tensor", each<promotes(kCalculable), 0, 1>},
    {"aten::_foreach_neg", each<keeps(kFloats), 0>},
    {"aten::_foreach_norm.Scalar", norms},
    {"aten::_foreach_pow.List", each<promotes(kFloats), 0, 1>},
    {"aten::_foreach_pow.Scalar", each_float<1>},
    {"aten::_foreach_pow.ScalarList", each_float<1>},
    {"aten::_foreach_reciprocal", each<floats(kFloats), 0>},
    {"aten::_foreach_round", each<keeps(kFloats), 0>},
    {"aten::_foreach_rsqrt", each<floats(kFloats), 0>},
    {"aten::_foreach_sigmoid", each<floats(kFloats), 0>},
    {"aten::_foreach_sign", each<keeps(kFloats), 0>},
    {"aten::_foreach_sin", each<floats(kFloats), 0>},
    {"aten::_foreach_sqrt", each<floats(kFloats), 0>},
    {"aten::_foreach_sub.List", each<promotes(kCalculable), 0, 1>},
    {"aten::_foreach_sub.Scalar", each<promotes(kCalculable), 0, 1>},
    {"aten::_foreach_sub.ScalarList", each<promotes(kCalculable), 0, 1>},
    {"aten::_foreach_tanh", each<floats(kFloats), 0>},
    {"aten::_foreach_trunc", each<keeps(kFloats), 0>},
    {"aten::_foreach_zero", lists_like<0>},
    {"aten::_fused_adagrad", lists_like<0, 1, 2, 3>},
    {"aten::_fused_adagrad.tensor_lr", lists_like<0, 1, 2>},
    {"aten::_fused_adam", lists_like<0, 1, 2, 3, 4>},
    {"aten::_fused_adam.tensor_lr", lists_like<0, 1, 2, 3, 4>},
    {"aten::_fused_adamw", lists_like<0, 1, 2, 3, 4>},
    {"aten::_fused_adamw.tensor_lr", lists_like<0, 1, 2, 3, 4>},
    {"aten::_fused_sgd", lists_like<0, 1, 2>},
    {"aten::_fused_sgd.tensor_lr", lists_like<0, 1, 2>},
};

}  // namespace

std::span<const OpRow> foreach_rows() { return kRows; }

}  // namespace smelt
