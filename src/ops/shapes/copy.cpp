// Copies, fills and the *_like factories: results in the layout of an argument.
#include "ops/rules/layout.h"
#include "ops/rules/promotion.h"
#include "ops/shapes/families.h"
#include "ops/shapes/options.h"

namespace smelt {
namespace {

// The layout a memory_format argument asks for, of a tensor like `self`.
std::optional<Sizes> strides_like(SymbolTable& s, const TensorType& self,
                                  std::optional<MemoryFormat> format) {
  if (!format || *format == kPreserve) return preserved_strides(s, self);
  return format_strides(self.sizes, *format);
}

Decision push_like(ShapeQuery& q, const TensorType& self, const Options& options,
                   std::optional<MemoryFormat> format) {
  std::optional<Sizes> strides = strides_like(q.symbols(), self, format);
  if (!strides) return Decision::forbid("the memory format needs another rank");
  q.push(fresh(options.dtype, options.device, self.sizes, std::move(*strides)));
  return Decision::allow();
}

Decision clone(ShapeQuery& q) {
  const TensorType self = q.tensor(0);
  return push_like(q, self, {self.dtype, self.device}, q.format(1));
}

// *_like(self, ..., dtype, layout, device, pin_memory, memory_format), the options from argument
// `at` on.
template <size_t at, Kinds kinds = 0>
Decision like(ShapeQuery& q) {
  const TensorType self = q.tensor(0);
  Options options{self.dtype, self.device};
  if (Decision read = read_options(q, at, options); !read) return read;
  if (kinds != 0 && !takes(kinds, options.dtype))
    return Decision::forbid("no random values of this dtype");
  return push_like(q, self, options, q.format(at + 4));
}

Decision full_like(ShapeQuery& q) {
  const TensorType self = q.tensor(0);
  if (q.arg(1).is<std::complex<double>>() && !is_complex(q.dtype(2).value_or(self.dtype))) {
    return Decision::forbid("a complex value in a real tensor");
  }
  return like<2>(q);
}

// _to_copy(self, dtype, layout, device, pin_memory, non_blocking, memory_format)
Decision to_copy(ShapeQuery& q) {
  const TensorType self = q.tensor(0);
  Options options{self.dtype, self.device};
  if (Decision read = read_options(q, 1, options); !read) return read;
  return push_like(q, self, options, q.format(6));
}

Decision fill(ShapeQuery& q) {
  const TensorType self = q.tensor(0), value = q.tensor(1);
  if (value.rank() != 0) return Decision::forbid("the value is not a scalar");
  if (is_complex(value.dtype) && !is_complex(self.dtype)) {
    return Decision::forbid("a complex value in a real tensor");
  }
  q.push(preserved(q.symbols(), self));
  return Decision::allow();
}

// copy(self, src): src broadcast and converted to a tensor that is self in all but its values.
Decision copy(ShapeQuery& q) {
  const TensorType self = q.tensor(0), source = q.tensor(1);
  if (!expandable(q.symbols(), source.sizes, self.sizes))
    return Decision::forbid("src does not broadcast");
  // Whether an empty tensor has an empty storage, and so loses its offset, is not known.
  if (is_empty(q.symbols(), self.sizes) && !self.offset.is(0))
    return Decision::forbid("an empty view");
  q.push(exact_clone(q.symbols(), self));
  return Decision::allow();
}

// A fresh tensor in the layout of the first argument.
template <Kinds kinds>
Decision same(ShapeQuery& q) {
  if (!takes(kinds, q.tensor(0).dtype)) return Decision::forbid("no rule for this dtype");
  q.push(preserved(q.symbols(), q.tensor(0)));
  return Decision::allow();
}

template <Kinds kinds>
Decision same_contiguous(ShapeQuery& q) {
  const TensorType self = q.tensor(0);
  if (!takes(kinds, self.dtype)) return Decision::forbid("no rule for this dtype");
  q.push(fresh_like(self, self.sizes));
  return Decision::allow();
}

// bernoulli.Tensor(self, p): drawn into a copy of self.
Decision bernoulli_tensor(ShapeQuery& q) {
  const TensorType self = q.tensor(0), p = q.tensor(1);
  if (!takes(kAll, self.dtype) || is_complex(self.dtype) || !takes(kFloats, p.dtype) ||
      !expandable(q.symbols(), p.sizes, self.sizes))
    return Decision::forbid("no rule for these operands");
  q.push(preserved(q.symbols(), self));
  return Decision::allow();
}

Decision bernoulli_p(ShapeQuery& q) {
  if (!(q.number(1) >= 0 && q.number(1) <= 1)) return Decision::forbid("p is not a probability");
  return same_contiguous<kNoComplex>(q);
}

Decision uniform(ShapeQuery& q) {
  if (!(q.number(1) <= q.number(2))) return Decision::forbid("an empty range");
  return same<kDifferentiable>(q);
}

Decision normal(ShapeQuery& q) {
  if (!(q.number(2) >= 0)) return Decision::forbid("a negative deviation");
  return same<kDifferentiable>(q);
}

template <Kinds kinds, size_t scale>
Decision positive(ShapeQuery& q) {
  if (!(q.number(scale) > 0)) return Decision::forbid("a parameter is not positive");
  return same<kinds>(q);
}

Decision geometric(ShapeQuery& q) {
  if (!(q.number(1) > 0 && q.number(1) < 1)) return Decision::forbid("p is not between 0 and 1");
  return same<kNumbers>(q);
}

// Are the random integers low .. high - 1 values of the dtype? Nothing is drawn at random from an
// empty range.
bool has_range(DType dtype, int64_t low, int64_t high) {
  const auto within = [&](int64_t least, int64_t most) { return low >= least && high - 1 <= most; };
  if (low >= high) return false;
  switch (dtype) {
    case DType::b8: return within(0, 1);
    case DType::u8: return within(0, 255);
    case DType::i8: return within(-128, 127);
    case DType::i16: return within(-32768, 32767);
    case DType::i32: return within(INT32_MIN, INT32_MAX);
    case DType::i64: return true;
    case DType::f16: return within(-2048, 2048);
    case DType::bf16: return within(-256, 256);
    case DType::f32: return within(-(1 << 24), 1 << 24);
    case DType::f64: return within(-(1LL << 53), 1LL << 53);
    default: return false;
  }
}

// randint_like(self, [low,] high, dtype, ...)
template <bool has_low>
Decision randint_like(ShapeQuery& q) {
  if (Decision made = like<has_low ? 3 : 2>(q); !made) return made;
  if (!has_range(q.results[0]->dtype, has_low ? q.integer(1) : 0, q.integer(has_low ? 2 : 1))) {
    return Decision::forbid("no such range of this dtype");
  }
  return Decision::allow();
}

// random(self, [from,] to)
template <bool has_low>
Decision random(ShapeQuery& q) {
  if (q.is_none(has_low ? 2 : 1)) return Decision::forbid("the range is left open");
  if (!has_range(q.tensor(0).dtype, has_low ? q.integer(1) : 0, q.integer(has_low ? 2 : 1))) {
    return Decision::forbid("no such range of this dtype");
  }
  return same<kNoComplex>(q);
}

Decision masked_fill(ShapeQuery& q) {
  const TensorType self = q.tensor(0), mask = q.tensor(1), value = q.tensor(2);
  if (mask.dtype != DType::b8) return Decision::forbid("the mask is no bool tensor");
  if (value.rank() != 0) return Decision::forbid("the value is not a scalar");
  if (is_complex(value.dtype) && !is_complex(self.dtype)) {
    return Decision::forbid("a complex value in a real tensor");
  }
  if (!takes(kAll, self.dtype)) return Decision::forbid("no rule for this dtype");
  if (mask.device != self.device) return Decision::forbid("the mask is on another device");
  std::optional<Sizes> sizes = broadcast(q.symbols(), self.sizes, mask.sizes);
  if (!sizes) return Decision::forbid("the mask does not broadcast");
  q.push(fresh_like(self, std::move(*sizes)));
  return Decision::allow();
}

Decision dropout(ShapeQuery& q) {
  SymbolTable& s = q.symbols();
  const TensorType self = q.tensor(0);
  if (!takes(kFloats, self.dtype)) return Decision::forbid("no rule for this dtype");
  if (is_empty(s, self.sizes)) return Decision::forbid("dropout returns an empty input itself");
  if (!(q.number(1) >= 0 && q.number(1) <= 1)) return Decision::forbid("p is not a probability");
  q.push(preserved(s, self));
  q.push(preserved(s, self, DType::b8));
  return Decision::allow();
}

// new_*(self, size, [value or stride], dtype, layout, device, pin_memory)
template <size_t at>
Decision new_tensor(ShapeQuery& q) {
  const TensorType self = q.tensor(0);
  Options options{self.dtype, self.device};
  if (Decision read = read_options(q, at, options); !read) return read;
  Sizes sizes = q.sizes(1);
  for (const Size& size : sizes) {
    if (less(q.symbols(), size, 0)) return Decision::forbid("a size is negative");
  }
  q.push(fresh(options.dtype, options.device, std::move(sizes)));
  return Decision::allow();
}

Decision new_full(ShapeQuery& q) {
  const DType dtype = q.dtype(3).value_or(q.tensor(0).dtype);
  if (q.arg(2).is<std::complex<double>>() && !is_complex(dtype)) {
    return Decision::forbid("a complex value in a real tensor");
  }
  return new_tensor<3>(q);
}

Decision new_empty_strided(ShapeQuery& q) {
  if (Decision made = new_tensor<3>(q); !made) return made;
  q.results[0]->strides = q.sizes(2);
  if (q.results[0]->strides.size() != q.results[0]->sizes.size()) {
    return Decision::forbid("sizes and strides differ in length");
  }
  for (const Size& stride : q.results[0]->strides) {
    if (less(q.symbols(), stride, 0)) return Decision::forbid("a stride is negative");
  }
  return Decision::allow();
}

constexpr OpRow kRows[] = {
    {"aten::_conj_physical", same<kAll>},
    {"aten::_to_copy", to_copy, {.recording = Recording::copy}},
    {"aten::bernoulli", same_contiguous<kFloats>, {.may_fail = true}},
    {"aten::bernoulli.Tensor", bernoulli_tensor, {.may_fail = true}},
    {"aten::bernoulli.p", bernoulli_p, {.may_fail = true}},
    {"aten::cauchy", positive<kFloats, 2>},
    {"aten::clone", clone},
    {"aten::copy", copy},
    {"aten::empty_like", like<1>},
    {"aten::exponential", positive<kFloats, 1>},
    {"aten::fill.Scalar", fill},
    {"aten::fill.Tensor", fill},
    {"aten::full_like", full_like},
    {"aten::geometric", geometric},
    {"aten::lift_fresh_copy", same_contiguous<kAll>},
    {"aten::log_normal", positive<kFloats, 2>, {.may_fail = true}},
    {"aten::masked_fill.Scalar", masked_fill},
    {"aten::masked_fill.Tensor", masked_fill},
    {"aten::native_dropout", dropout},
    {"aten::new_empty", new_tensor<2>},
    {"aten::new_empty_strided", new_empty_strided},
    {"aten::new_full", new_full},
    {"aten::new_ones", new_tensor<2>},
    {"aten::new_zeros", new_tensor<2>},
    {"aten::normal_functional", normal, {.may_fail = true}},
    {"aten::ones_like", like<1>},
    {"aten::rand_like", like<1, kDifferentiable>},
    {"aten::randint_like", randint_like<false>},
    {"aten::randint_like.low_dtype", randint_like<true>},
    {"aten::randn_like", like<1, kDifferentiable>},
    {"aten::random", same<kNoComplex>},
    {"aten::random.from", random<true>},
    {"aten::random.to", random<false>},
    {"aten::uniform", uniform},
    {"aten::zero", same<kAll>},
    {"aten::zeros_like", like<1>},
};

}  // namespace

std::span<const OpRow> copy_rows() { return kRows; }

}  // namespace smelt
