// Tensors from nothing: sizes and options in, a contiguous tensor out.
#include <limits>

#include <algorithm>
#include <cmath>

#include "ops/rules/layout.h"
#include "ops/rules/promotion.h"
#include "ops/shapes/families.h"
#include "ops/shapes/options.h"

namespace smelt {
namespace {

Decision push_new(ShapeQuery& q, const Options& options, Sizes sizes) {
  for (const Size& size : sizes) {
    if (less(q.symbols(), size, 0)) return Decision::forbid("a size is negative");
  }
  q.push(fresh(options.dtype, options.device, std::move(sizes)));
  return Decision::allow();
}

// The dtype a number has by itself: bool, i64, the default float or complex.
DType dtype_of_number(const ShapeQuery& q, size_t i) {
  const DType dtype = q.tensor(i).dtype;
  if (is_complex(dtype)) return default_complex(q.default_float());
  return is_floating(dtype) ? q.default_float() : dtype;
}

// factory(size, ..., dtype, layout, device, pin_memory), the options from argument `at` on.
template <size_t size, size_t at, Kinds kinds = 0>
Decision make(ShapeQuery& q) {
  Options options{q.default_float(), {}};
  if (Decision read = read_options(q, at, options); !read) return read;
  if (kinds != 0 && !takes(kinds, options.dtype))
    return Decision::forbid("no random values of this dtype");
  return push_new(q, options, q.sizes(size));
}

// empty(size, dtype, layout, device, pin_memory, memory_format)
Decision empty(ShapeQuery& q) {
  if (Decision made = make<0, 1>(q); !made) return made;
  const MemoryFormat format = q.format(5).value_or(kContiguous);
  std::optional<Sizes> strides = format_strides(q.results[0]->sizes, format);
  if (!strides) return Decision::forbid("the memory format needs another rank");
  q.results[0]->strides = std::move(*strides);
  return Decision::allow();
}

Decision empty_strided(ShapeQuery& q) {
  if (Decision made = make<0, 2>(q); !made) return made;
  Sizes strides = q.sizes(1);
  if (strides.size() != q.results[0]->sizes.size())
    return Decision::forbid("sizes and strides differ in length");
  for (const Size& stride : strides) {
    if (less(q.symbols(), stride, 0)) return Decision::forbid("a stride is negative");
  }
  q.results[0]->strides = std::move(strides);
  return Decision::allow();
}

// empty_permuted(size, physical_layout, ...): the layout lists the dimensions from the slowest on.
Decision empty_permuted(ShapeQuery& q) {
  if (Decision made = make<0, 2>(q); !made) return made;
  TensorType& result = *q.results[0];
  const std::vector<int64_t> order = q.integers(1);
  std::vector<bool> seen(result.sizes.size());
  if (order.size() != result.sizes.size()) return Decision::forbid("a bad layout");
  Sizes physical;
  for (int64_t d : order) {
    if (d < 0 || d >= result.rank() || seen[d]) return Decision::forbid("a bad layout");
    seen[d] = true;
    physical.push_back(result.sizes[d]);
  }
  const Sizes strides = contiguous_strides(physical);
  for (size_t i = 0; i < order.size(); ++i) result.strides[order[i]] = strides[i];
  return Decision::allow();
}

// full(size, value, ...)
Decision full(ShapeQuery& q) {
  Options options{dtype_of_number(q, 1), {}};
  if (Decision read = read_options(q, 2, options); !read) return read;
  if (q.arg(1).is<std::complex<double>>() && !is_complex(options.dtype))
    return Decision::forbid("a complex value");
  return push_new(q, options, q.sizes(0));
}

// scalar_tensor(value, ...): the default float, whatever the value.
Decision scalar_tensor(ShapeQuery& q) {
  Options options{q.default_float(), {}};
  if (Decision read = read_options(q, 1, options); !read) return read;
  if (q.arg(0).is<std::complex<double>>() && !is_complex(options.dtype))
    return Decision::forbid("a complex value");
  return push_new(q, options, {});
}

// The number of steps from start to end; nothing where it is not certain. It is exact where all
// values are whole, doubles too.
std::optional<Size> range_length(const ShapeQuery& q, const Arg& start, const Arg& end,
                                 const Arg& step) {
  SymbolTable& s = q.symbols();
  const auto whole = [&](const Arg& number) -> std::optional<Size> {
    if (number.is<Size>()) return number.get<Size>();
    const double value = number.get<double>();
    if (value != std::floor(value) || std::abs(value) > 1e9) return std::nullopt;
    return Size(static_cast<int64_t>(value));
  };
  const auto from = whole(start), to = whole(end), by = whole(step);
  if (!from || !to || !by || equal(s, *by, 0)) return std::nullopt;
  const bool forward = less(s, 0, *by);
  const Size distance = forward ? *to - *from : *from - *to;
  const Size stride = forward ? *by : Size(0) - *by;
  if (less(s, distance, 0)) return std::nullopt;
  return floor_div(distance + stride - 1, stride);
}

// arange([start,] end, [step,] ...): i64 of integers, the default float of floats.
template <size_t numbers>
Decision arange(ShapeQuery& q) {
  const Arg start = numbers == 1 ? Arg(Size(0)) : q.arg(0);
  const Arg end = q.arg(numbers == 1 ? 0 : 1);
  const Arg step = numbers == 3 ? q.arg(2) : Arg(Size(1));
  Options options{DType::i64, {}};
  for (const Arg* number : {&start, &end, &step}) {
    if (!number->is<Size>() && !number->is<double>())
      return Decision::forbid("not a range of numbers");
    if (number->is<double>()) options.dtype = q.default_float();
  }
  if (Decision read = read_options(q, numbers, options); !read) return read;
  if (!takes(kNumbers, options.dtype)) return Decision::forbid("no range of this dtype");
  const std::optional<Size> length = range_length(q, start, end, step);
  if (!length) return Decision::forbid("the length of the range is not certain");
  return push_new(q, options, {*length});
}

// linspace(start, end, steps, ...)
Decision linspace(ShapeQuery& q) {
  Options options{q.default_float(), {}};
  if (Decision read = read_options(q, 3, options); !read) return read;
  const bool complex = q.arg(0).is<std::complex<double>>() || q.arg(1).is<std::complex<double>>();
  if (complex || !takes(kNumbers, options.dtype)) return Decision::forbid("no rule for this dtype");
  return push_new(q, options, {q.size_at(2)});
}

template <bool has_columns>
Decision eye(ShapeQuery& q) {
  Options options{q.default_float(), {}};
  if (Decision read = read_options(q, has_columns ? 2 : 1, options); !read) return read;
  return push_new(q, options, {q.size_at(0), q.size_at(has_columns ? 1 : 0)});
}

// Can the dtype hold the whole numbers from low to the one before high?
bool holds(DType dtype, int64_t low, int64_t high) {
  const auto within = [&](int64_t least, int64_t most) { return low >= least && high - 1 <= most; };
  switch (dtype) {
    case DType::u8: return within(0, 255);
    case DType::i8: return within(-128, 127);
    case DType::i16: return within(-32768, 32767);
    case DType::i32:
      return within(std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max());
    case DType::f16: return within(-65504, 65504);
    case DType::bf16:
    case DType::f32:
    case DType::f64:
    case DType::i64: return true;
    default: return false;
  }
}

// randint([low,] high, size, [generator,] ...)
template <bool has_low, bool has_generator>
Decision randint(ShapeQuery& q) {
  constexpr size_t size = has_low ? 2 : 1;
  Options options{DType::i64, {}};
  if (Decision read = read_options(q, size + (has_generator ? 2 : 1), options); !read) return read;
  const Size low = has_low ? q.size_at(0) : Size(0);
  const Size high = q.size_at(size - 1);
  if (!less(q.symbols(), low, high)) return Decision::forbid("an empty range");
  if (options.dtype != DType::i64 &&
      !holds(options.dtype, q.symbols().specialise(low), q.symbols().specialise(high)))
    return Decision::forbid("the range must fit the dtype");
  return push_new(q, options, q.sizes(size));
}

template <bool has_generator>
Decision randperm(ShapeQuery& q) {
  Options options{DType::i64, {}};
  if (Decision read = read_options(q, has_generator ? 2 : 1, options); !read) return read;
  if (options.dtype != DType::i64) return Decision::forbid("the range must fit the dtype");
  return push_new(q, options, {q.size_at(0)});
}

// normal(mean, std, size, generator, ...)
Decision normal(ShapeQuery& q) {
  if (!(q.number(1) >= 0)) return Decision::forbid("a negative deviation");
  return make<2, 4, kDifferentiable>(q);
}

// tril_indices, triu_indices (row, col, offset, ...): two rows of indices.
template <bool upper>
Decision triangle_indices(ShapeQuery& q) {
  const int64_t rows = q.integer(0), columns = q.integer(1), offset = q.integer(2);
  if (rows < 0 || columns < 0) return Decision::forbid("a negative size");
  Options options{DType::i64, {}};
  if (Decision read = read_options(q, 3, options); !read) return read;
  if (options.dtype != DType::i64 && options.dtype != DType::i32)
    return Decision::forbid("not an index dtype");
  int64_t count = 0;
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t lower = std::clamp<int64_t>(row + offset + (upper ? 0 : 1), 0, columns);
    count += upper ? columns - lower : lower;
  }
  return push_new(q, options, {2, count});
}

constexpr OpRow kRows[] = {
    {"aten::arange", arange<1>},
    {"aten::arange.start", arange<2>},
    {"aten::arange.start_step", arange<3>},
    {"aten::empty.memory_format", empty},
    {"aten::empty_permuted", empty_permuted},
    {"aten::empty_strided", empty_strided},
    {"aten::eye", eye<false>},
    {"aten::eye.m", eye<true>},
    {"aten::full", full},
    {"aten::linspace", linspace},
    {"aten::normal.float_float", normal, {.may_fail = true}},
    {"aten::ones", make<0, 1>},
    {"aten::rand", make<0, 1, kDifferentiable>},
    {"aten::rand.generator", make<0, 2, kDifferentiable>},
    {"aten::randint", randint<false, false>},
    {"aten::randint.generator", randint<false, true>},
    {"aten::randint.low", randint<true, false>},
    {"aten::randint.low_generator", randint<true, true>},
    {"aten::randn", make<0, 1, kDifferentiable>},
    {"aten::randn.generator", make<0, 2, kDifferentiable>},
    {"aten::randperm", randperm<false>},
    {"aten::randperm.generator", randperm<true>},
    {"aten::scalar_tensor", scalar_tensor},
    {"aten::tril_indices", triangle_indices<false>},
    {"aten::triu_indices", triangle_indices<true>},
    {"aten::zeros", make<0, 1>},
};

}  // namespace

std::span<const OpRow> factory_rows() { return kRows; }

}  // namespace smelt
