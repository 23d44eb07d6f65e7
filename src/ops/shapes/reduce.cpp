// Reductions: fresh contiguous results over the dimensions that are left.
#include "ops/rules/layout.h"
#include "ops/rules/promotion.h"
#include "ops/shapes/families.h"
#include "ops/shapes/reduction.h"

namespace smelt {
namespace {

// The reduced dimensions as a mask over those of `self`; nothing where torch refuses.
std::optional<std::vector<bool>> reduced_dims(const ShapeQuery& q, const TensorType& self,
                                              size_t dims, bool empty_is_none) {
  if (self.rank() > 64) return std::nullopt;
  std::vector<bool> mask(std::max(self.rank(), 1));
  const std::vector<int64_t> listed = q.is_none(dims) ? std::vector<int64_t>() : q.integers(dims);
  if (q.is_none(dims) || (listed.empty() && !empty_is_none)) {
    mask.assign(mask.size(), true);
    return mask;
  }
  for (int64_t item : listed) {
    const std::optional<int> dim = wrap_dim(item, self.rank());
    if (!dim || mask[*dim]) return std::nullopt;
    mask[*dim] = true;
  }
  return mask;
}

}  // namespace

std::optional<Sizes> reduced_sizes(const ShapeQuery& q, const TensorType& self, size_t dims,
                                   bool keepdim, bool empty_is_none) {
  const std::optional<std::vector<bool>> mask = reduced_dims(q, self, dims, empty_is_none);
  if (!mask) return std::nullopt;
  Sizes sizes;
  for (int d = 0; d < self.rank(); ++d) {
    if (!(*mask)[d]) {
      sizes.push_back(self.sizes[d]);
    } else if (keepdim) {
      sizes.push_back(1);
    }
  }
  return sizes;
}

bool reduces_something(const ShapeQuery& q, const TensorType& self, size_t dims) {
  const std::optional<std::vector<bool>> mask = reduced_dims(q, self, dims, false);
  if (!mask) return false;
  for (int d = 0; d < self.rank(); ++d) {
    if ((*mask)[d] && equal(q.symbols(), self.sizes[d], 0)) return false;
  }
  return true;
}

namespace {

constexpr size_t kNoArgument = SIZE_MAX;

bool keeps_dim(const ShapeQuery& q, size_t keepdim) {
  return keepdim != kNoArgument && q.boolean(keepdim);
}

Decision push_reduced(ShapeQuery& q, const TensorType& self, size_t dims, size_t keepdim,
                      DType dtype, bool empty_is_none = false) {
  std::optional<Sizes> sizes = reduced_sizes(q, self, dims, keeps_dim(q, keepdim), empty_is_none);
  if (!sizes) return Decision::forbid("a bad dimension");
  q.push(fresh(dtype, self.device, std::move(*sizes)));
  return Decision::allow();
}

// Sums and products: integers are added up as i64, an explicit dtype is taken.
template <Kinds kinds, size_t dims, size_t keepdim, size_t dtype>
Decision total(ShapeQuery& q) {
  const TensorType self = q.tensor(0);
  const DType widened = takes(kIntegral, self.dtype) ? DType::i64 : self.dtype;
  const DType result = q.dtype(dtype).value_or(widened);
  if (!takes(kAll, self.dtype) || !takes(kinds, result))
    return Decision::forbid("no rule for this dtype");
  return push_reduced(q, self, dims, keepdim, result);
}

template <size_t dims, size_t keepdim, size_t dtype>
Decision mean(ShapeQuery& q) {
  const TensorType self = q.tensor(0);
  const DType result = q.dtype(dtype).value_or(self.dtype);
  if (!takes(kAll, self.dtype) || !takes(kDifferentiable, result))
    return Decision::forbid("no rule for this dtype");
  return push_reduced(q, self, dims, keepdim, result);
}

// var, std (self, dim, correction, keepdim), with or without the mean.
template <bool with_mean>
Decision variance(ShapeQuery& q) {
  const TensorType self = q.tensor(0);
  if (!takes(kDifferentiable, self.dtype)) return Decision::forbid("no rule for this dtype");
  if (Decision made = push_reduced(q, self, 1, 3, real_of(self.dtype)); !made) return made;
  if (with_mean) q.push(fresh_like(self, q.results[0]->sizes));
  return Decision::allow();
}

template <size_t dims, size_t keepdim, bool empty_is_none>
Decision all_or_any(ShapeQuery& q) {
  const TensorType self = q.tensor(0);
  if (!takes(kAll, self.dtype)) return Decision::forbid("no rule for this dtype");
  // torch keeps bytes for the sake of old programs.
  return push_reduced(q, self, dims, keepdim, self.dtype == DType::u8 ? DType::u8 : DType::b8,
                      empty_is_none);
}

// amax, amin, max, min: no value to start from.
template <size_t dims, size_t keepdim>
Decision extreme(ShapeQuery& q) {
  const TensorType self = q.tensor(0);
  if (!takes(kNoComplex, self.dtype)) return Decision::forbid("no rule for this dtype");
  if (!reduces_something(q, self, dims))
    return Decision::forbid("an empty reduction has no extreme");
  return push_reduced(q, self, dims, keepdim, self.dtype);
}

Decision both_extremes(ShapeQuery& q) {
  if (Decision made = extreme<1, 2>(q); !made) return made;
  q.push(*q.results[0]);
  return Decision::allow();
}

Decision arg_extreme(ShapeQuery& q) {
  const TensorType self = q.tensor(0);
  if (!takes(kNumbers, self.dtype)) return Decision::forbid("no rule for this dtype");
  if (!reduces_something(q, self, 1)) return Decision::forbid("an empty reduction has no extreme");
  return push_reduced(q, self, 1, 2, DType::i64);
}

// max.dim, median.dim and so on: a value and where it was.
template <Kinds kinds, size_t dim, size_t keepdim>
Decision value_and_place(ShapeQuery& q) {
  const TensorType self = q.tensor(0);
  if (!takes(kinds, self.dtype)) return Decision::forbid("no rule for this dtype");
  if (!reduces_something(q, self, dim))
    return Decision::forbid("an empty reduction has no such value");
  if (Decision made = push_reduced(q, self, dim, keepdim, self.dtype); !made) return made;
  q.push(fresh(DType::i64, self.device, q.results[0]->sizes));
  return Decision::allow();
}

Decision kthvalue(ShapeQuery& q) {
  const TensorType self = q.tensor(0);
  const std::optional<int> dim = wrap_dim(q.integer(2), self.rank());
  if (!dim) return Decision::forbid("a bad dimension");
  const Size length = self.rank() == 0 ? Size(1) : self.sizes[*dim];
  const Size k = q.size_at(1);
  if (less(q.symbols(), k, 1) || less(q.symbols(), length, k))
    return Decision::forbid("k is out of range");
  return value_and_place<kNumbers, 2, 3>(q);
}

// The median of a whole tensor; of none it is NaN, or an error for integers.
Decision median(ShapeQuery& q) {
  const TensorType self = q.tensor(0);
  const bool has_value = takes(kFloats, self.dtype) || !is_empty(q.symbols(), self.sizes);
  if (!takes(kNumbers, self.dtype) || !has_value) return Decision::forbid("no rule for this dtype");
  q.push(fresh_like(self, {}));
  return Decision::allow();
}

Decision logsumexp(ShapeQuery& q) {
  const TensorType self = q.tensor(0);
  if (!takes(kAll, self.dtype)) return Decision::forbid("no rule for this dtype");
  if (q.integers(1).empty()) return Decision::forbid("no dimension is given");
  return push_reduced(q, self, 1, 2, floating_of(self.dtype, q.default_float()));
}

Decision norm(ShapeQuery& q) {
  const TensorType self = q.tensor(0);
  if (!takes(kDifferentiable, self.dtype)) return Decision::forbid("no rule for this dtype");
  if (q.arg(1).is<std::complex<double>>()) return Decision::forbid("a complex order");
  if (!reduces_something(q, self, 2)) return Decision::forbid("some norms of nothing do not exist");
  return push_reduced(q, self, 2, 3, real_of(self.dtype));
}

// linalg_vector_norm(self, ord, dim, keepdim, dtype)
Decision vector_norm(ShapeQuery& q) {
  const TensorType self = q.tensor(0);
  const DType dtype = q.dtype(4).value_or(self.dtype);
  if (!takes(kDifferentiable, self.dtype) || !takes(kDifferentiable, dtype)) {
    return Decision::forbid("no rule for this dtype");
  }
  const bool widens =
      is_complex(self.dtype) == is_complex(dtype) && promote(self.dtype, dtype) == dtype;
  if (!widens) return Decision::forbid("the dtype is narrower than the input's");
  if (q.arg(1).is<std::complex<double>>()) return Decision::forbid("a complex order");
  if (!reduces_something(q, self, 2)) return Decision::forbid("some norms of nothing do not exist");
  return push_reduced(q, self, 2, 3, real_of(dtype));
}

Decision count_nonzero(ShapeQuery& q) {
  const TensorType self = q.tensor(0);
  if (!takes(kAll, self.dtype)) return Decision::forbid("no rule for this dtype");
  return push_reduced(q, self, 1, kNoArgument, DType::i64);
}

// (data, reduce, lengths, indices, offsets, axis, unsafe, initial)
Decision segment_reduce(ShapeQuery& q) {
  const TensorType data = q.tensor(0);
  const size_t segments = q.is_tensor(4) ? 4 : 2;
  if (!takes(kFloats, data.dtype)) return Decision::forbid("no rule for this dtype");
  if (!q.is_tensor(segments) || !q.is_none(3)) return Decision::forbid("no lengths or offsets");
  const TensorType ends = q.tensor(segments);
  const std::optional<int> axis = wrap_dim(q.integer(5), data.rank());
  if (!axis || *axis != ends.rank() - 1 || ends.device != data.device)
    return Decision::forbid("a bad axis");
  Sizes sizes = data.sizes;
  sizes[*axis] = segments == 4 ? ends.sizes[*axis] - 1 : ends.sizes[*axis];
  q.push(fresh_like(data, std::move(sizes)));
  return Decision::allow();
}

// (grad, output, data, ...)
Decision segment_reduce_backward(ShapeQuery& q) {
  const TensorType grad = q.tensor(0), data = q.tensor(2);
  if (!takes(kFloats, data.dtype) || grad.dtype != data.dtype)
    return Decision::forbid("no rule for this dtype");
  q.push(fresh_like(grad, data.sizes));
  return Decision::allow();
}

Decision trace(ShapeQuery& q) {
  const TensorType self = q.tensor(0);
  if (self.rank() != 2 || !takes(kNumbers | kComplexes, self.dtype))
    return Decision::forbid("not a matrix of numbers");
  q.push(fresh(takes(kInts, self.dtype) ? DType::i64 : self.dtype, self.device, {}));
  return Decision::allow();
}

// Where an op has no such argument, the rule reads one that is absent.
constexpr size_t kAllDims = 99;

constexpr OpRow kRows[] = {
    {"aten::_segment_reduce_backward", segment_reduce_backward, {.may_fail = true}},
    {"aten::all",
     all_or_any<kAllDims, kNoArgument, false>,
     {.reduces_all = true, .asks = Quantifier::all}},
    {"aten::all.dim", all_or_any<1, 2, false>},
    {"aten::all.dims", all_or_any<1, 2, true>},
    {"aten::amax", extreme<1, 2>},
    {"aten::amin", extreme<1, 2>},
    {"aten::aminmax", both_extremes},
    {"aten::any",
     all_or_any<kAllDims, kNoArgument, false>,
     {.reduces_all = true, .asks = Quantifier::any}},
    {"aten::any.dim", all_or_any<1, 2, false>},
    {"aten::any.dims", all_or_any<1, 2, true>},
    {"aten::argmax", arg_extreme},
    {"aten::argmin", arg_extreme},
    {"aten::count_nonzero", count_nonzero},
    {"aten::count_nonzero.dim_IntList", count_nonzero},
    {"aten::kthvalue", kthvalue},
    {"aten::linalg_vector_norm", vector_norm, {.may_fail = true}},
    {"aten::logsumexp", logsumexp},
    {"aten::max", extreme<kAllDims, kNoArgument>, {.reduces_all = true}},
    {"aten::max.dim", value_and_place<kNoComplex, 1, 2>},
    {"aten::mean", mean<kAllDims, kNoArgument, 1>, {.reduces_all = true}},
    {"aten::mean.dim", mean<1, 2, 3>},
    {"aten::median", median},
    {"aten::median.dim", value_and_place<kNumbers, 1, 2>},
    {"aten::min", extreme<kAllDims, kNoArgument>, {.reduces_all = true}},
    {"aten::min.dim", value_and_place<kNoComplex, 1, 2>},
    {"aten::mode", value_and_place<kNoComplex, 1, 2>},
    {"aten::nanmedian", median},
    {"aten::nanmedian.dim", value_and_place<kNumbers, 1, 2>},
    {"aten::nansum", total<kNoComplex, 1, 2, 3>},
    {"aten::norm.ScalarOpt_dim", norm},
    {"aten::prod", total<kAll, kAllDims, kNoArgument, 1>, {.reduces_all = true}},
    {"aten::prod.dim_int", total<kAll, 1, 2, 3>},
    {"aten::segment_reduce", segment_reduce, {.may_fail = true}},
    {"aten::std.correction", variance<false>},
    {"aten::std_mean.correction", variance<true>},
    {"aten::sum", total<kAll, kAllDims, kNoArgument, 1>, {.reduces_all = true}},
    {"aten::sum.dim_IntList", total<kAll, 1, 2, 3>},
    {"aten::trace", trace},
    {"aten::var.correction", variance<false>},
    {"aten::var_mean.correction", variance<true>},
};

}  // namespace

std::span<const OpRow> reduce_rows() { return kRows; }

}  // namespace smelt
