// Ops along one dimension that keep it: cumulative sums, softmax, sorting, searches.
#include "ops/rules/layout.h"
#include "ops/rules/promotion.h"
#include "ops/shapes/families.h"

namespace smelt {
namespace {

bool has_dim(const ShapeQuery& q, const TensorType& self, size_t dim) {
  return wrap_dim(q.integer(dim), self.rank()).has_value();
}

// cumsum, cumprod (self, dim, dtype)
Decision cumulative(ShapeQuery& q) {
  const TensorType self = q.tensor(0);
  const DType widened = takes(kIntegral, self.dtype) ? DType::i64 : self.dtype;
  const DType dtype = q.dtype(2).value_or(widened);
  if (!takes(kAll, self.dtype) || !takes(kNumbers | kComplexes, dtype))
    return Decision::forbid("no rule for this dtype");
  if (!has_dim(q, self, 1)) return Decision::forbid("a bad dimension");
  q.push(fresh(dtype, self.device, self.sizes));
  return Decision::allow();
}

Decision logcumsumexp(ShapeQuery& q) {
  const TensorType self = q.tensor(0);
  if (!takes(kDifferentiable, self.dtype)) return Decision::forbid("no rule for this dtype");
  if (!has_dim(q, self, 1)) return Decision::forbid("a bad dimension");
  q.push(fresh_like(self, self.sizes));
  return Decision::allow();
}

Decision cumulative_extreme(ShapeQuery& q) {
  const TensorType self = q.tensor(0);
  if (!takes(kNoComplex, self.dtype)) return Decision::forbid("no rule for this dtype");
  if (!has_dim(q, self, 1)) return Decision::forbid("a bad dimension");
  q.push(fresh_like(self, self.sizes));
  q.push(fresh(DType::i64, self.device, self.sizes));
  return Decision::allow();
}

// _softmax(self, dim, half_to_float)
Decision softmax(ShapeQuery& q) {
  const TensorType self = q.tensor(0);
  if (!takes(kFloats, self.dtype)) return Decision::forbid("no rule for this dtype");
  if (!has_dim(q, self, 1)) return Decision::forbid("a bad dimension");
  const bool widens = q.boolean(2);
  if (widens && (self.device.is_cpu() || self.dtype != DType::f16))
    return Decision::forbid("no such conversion");
  q.push(fresh(widens ? DType::f32 : self.dtype, self.device, self.sizes));
  return Decision::allow();
}

// _safe_softmax(self, dim, dtype): softmax(self), then 0 written where every value is -inf
Decision safe_softmax(ShapeQuery& q) {
  const TensorType self = q.tensor(0);
  const DType dtype = q.dtype(2).value_or(self.dtype);
  if (!takes(kFloats, self.dtype) || !takes(kFloats, dtype))
    return Decision::forbid("no rule for this dtype");
  if (!has_dim(q, self, 1)) return Decision::forbid("a bad dimension");
  q.push(fresh(dtype, self.device, self.sizes));
  return Decision::allow();
}

// _softmax_backward_data(grad, output, dim, input_dtype)
Decision softmax_backward(ShapeQuery& q) {
  const TensorType grad = q.tensor(0), output = q.tensor(1);
  if (!takes(kFloats, grad.dtype) || grad.dtype != output.dtype)
    return Decision::forbid("no rule for these dtypes");
  if (!equal(q.symbols(), grad.sizes, output.sizes))
    return Decision::forbid("grad and output differ in sizes");
  if (!has_dim(q, grad, 2)) return Decision::forbid("a bad dimension");
  const DType input = q.dtype(3).value();
  const bool narrows = !grad.device.is_cpu() && grad.dtype == DType::f32 && input == DType::f16;
  if (input != grad.dtype && !narrows) return Decision::forbid("no such conversion");
  q.push(fresh(input, grad.device, grad.sizes));
  return Decision::allow();
}

// Values and places in the layout of the input.
template <size_t dim>
Decision sort(ShapeQuery& q) {
  const TensorType self = q.tensor(0);
  if (!takes(kNoComplex, self.dtype)) return Decision::forbid("no rule for this dtype");
  if (!has_dim(q, self, dim)) return Decision::forbid("a bad dimension");
  q.push(preserved(q.symbols(), self));
  q.push(preserved(q.symbols(), self, DType::i64));
  return Decision::allow();
}

Decision topk(ShapeQuery& q) {
  const TensorType self = q.tensor(0);
  const std::optional<int> dim = wrap_dim(q.integer(2), self.rank());
  if (!takes(kNumbers, self.dtype) || !dim)
    return Decision::forbid("no rule for this dtype or dimension");
  const Size length = self.rank() == 0 ? Size(1) : self.sizes[*dim];
  const Size k = q.size_at(1);
  if (less(q.symbols(), k, 0) || less(q.symbols(), length, k))
    return Decision::forbid("k is out of range");
  Sizes sizes = self.sizes;
  if (!sizes.empty()) sizes[*dim] = k;
  q.push(fresh_like(self, sizes));
  q.push(fresh(DType::i64, self.device, sizes));
  return Decision::allow();
}

// A place for each value: (rows, values) at these arguments, out_int32 at the third.
template <size_t rows, size_t value>
Decision search(ShapeQuery& q) {
  if (!q.is_tensor(rows) || !q.is_tensor(value)) return Decision::forbid("one number");
  SymbolTable& s = q.symbols();
  const TensorType sorted = q.tensor(rows), values = q.tensor(value);
  if (!takes(kNumbers, sorted.dtype) || sorted.dtype != values.dtype || sorted.rank() == 0 ||
      sorted.device != values.device)
    return Decision::forbid("no rule for these operands");
  if (sorted.rank() > 1) {
    const std::span<const Size> lead(sorted.sizes.data(), sorted.sizes.size() - 1);
    if (values.rank() != sorted.rank() ||
        !equal(s, lead, std::span(values.sizes).first(lead.size())))
      return Decision::forbid("the rows do not fit");
  }
  q.push(fresh(q.boolean(2) ? DType::i32 : DType::i64, values.device, values.sizes));
  return Decision::allow();
}

Decision bucketize(ShapeQuery& q) {
  if (q.tensor(1).rank() != 1) return Decision::forbid("boundaries are one row");
  return search<1, 0>(q);
}

// (sorted_sequence, self, out_int32, right, side, sorter)
Decision searchsorted(ShapeQuery& q) {
  const std::string_view side = q.is_none(4) ? "" : q.text(4);
  const bool says_one_thing = side.empty() || side == "right" || (side == "left" && !q.boolean(3));
  if (!says_one_thing) return Decision::forbid("a side that is none, or another one than right=");
  if (!q.is_none(5)) {
    const TensorType sorter = q.tensor(5), sequence = q.tensor(0);
    if (sorter.dtype != DType::i64 || sorter.device != sequence.device ||
        !equal(q.symbols(), sorter.sizes, sequence.sizes))
      return Decision::forbid("the permutation that sorts does not fit");
  }
  return search<0, 1>(q);
}

constexpr OpRow kRows[] = {
    {"aten::_log_softmax", softmax},
    {"aten::_log_softmax_backward_data", softmax_backward},
    {"aten::_safe_softmax", safe_softmax},
    {"aten::_softmax", softmax},
    {"aten::_softmax_backward_data", softmax_backward},
    {"aten::bucketize.Tensor", bucketize},
    {"aten::cummax", cumulative_extreme},
    {"aten::cummin", cumulative_extreme},
    {"aten::cumprod", cumulative},
    {"aten::cumsum", cumulative},
    {"aten::logcumsumexp", logcumsumexp},
    {"aten::searchsorted.Tensor", searchsorted},
    {"aten::sort", sort<1>},
    {"aten::sort.stable", sort<2>},
    {"aten::topk", topk},
};

}  // namespace

std::span<const OpRow> scan_rows() { return kRows; }

}  // namespace smelt
