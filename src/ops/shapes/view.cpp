// Views of one tensor, their copying variants, and the functional forms of writing into a view.
#include "ops/rules/geometry.h"
#include "ops/rules/layout.h"
#include "ops/shapes/families.h"

namespace smelt {
namespace {

Decision push_view(ShapeQuery& q, MaybeType view) {
  if (!view) return Decision::forbid("there is no such view of the tensor");
  view->wrapped_number = false;
  q.push(std::move(*view));
  return Decision::allow();
}

std::optional<Size> maybe_size(const ShapeQuery& q, size_t i) {
  if (q.is_none(i)) return std::nullopt;
  return q.size_at(i);
}

Decision alias(ShapeQuery& q) { return push_view(q, q.tensor(0)); }

Decision view(ShapeQuery& q) { return push_view(q, viewed(q.symbols(), q.tensor(0), q.sizes(1))); }

Decision view_dtype(ShapeQuery& q) {
  return push_view(q, reinterpreted(q.symbols(), q.tensor(0), q.dtype(1).value()));
}

Decision reshape_alias(ShapeQuery& q) {
  return push_view(q, restrided(q.symbols(), q.tensor(0), q.sizes(1), q.sizes(2), std::nullopt));
}

Decision t(ShapeQuery& q) {
  const TensorType self = q.tensor(0);
  if (self.rank() > 2) return Decision::forbid("t takes at most two dimensions");
  return push_view(q, transposed(self, 0, self.rank() < 2 ? 0 : 1));
}

Decision transpose(ShapeQuery& q) {
  return push_view(q, transposed(q.tensor(0), q.integer(1), q.integer(2)));
}

Decision permute(ShapeQuery& q) { return push_view(q, permuted(q.tensor(0), q.integers(1))); }

Decision expand(ShapeQuery& q) {
  return push_view(q, expanded(q.symbols(), q.tensor(0), q.sizes(1)));
}

// slice(self, dim, start, end, step); `at` is where dim stands.
MaybeType slice_of(const ShapeQuery& q, const TensorType& self, size_t at) {
  return sliced(q.symbols(), self, q.integer(at), maybe_size(q, at + 1), maybe_size(q, at + 2),
                q.size_at(at + 3));
}

Decision slice(ShapeQuery& q) { return push_view(q, slice_of(q, q.tensor(0), 1)); }

Decision narrow_copy(ShapeQuery& q) {
  SymbolTable& s = q.symbols();
  const TensorType self = q.tensor(0);
  const std::optional<int> dim = wrap_dim(q.integer(1), self.rank());
  const Size start = q.size_at(2), length = q.size_at(3);
  if (self.rank() == 0 || !dim || less(s, start, 0) || less(s, length, 0))
    return Decision::forbid("a bad range");
  if (less(s, self.sizes[*dim], start + length))
    return Decision::forbid("the range leaves the tensor");
  return push_view(q, sliced(s, self, *dim, start, start + length, 1));
}

Decision select(ShapeQuery& q) {
  return push_view(q, selected(q.symbols(), q.tensor(0), q.integer(1), q.size_at(2)));
}

Decision unsqueeze(ShapeQuery& q) { return push_view(q, unsqueezed(q.tensor(0), q.integer(1))); }

Decision squeeze(ShapeQuery& q) {
  const TensorType self = q.tensor(0);
  std::vector<int64_t> dims;
  for (int d = 0; d < self.rank(); ++d) dims.push_back(d);
  return push_view(q, squeezed(q.symbols(), self, dims));
}

Decision squeeze_dims(ShapeQuery& q) {
  return push_view(q, squeezed(q.symbols(), q.tensor(0), q.integers(1)));
}

MaybeType diagonal_at(const ShapeQuery& q, const TensorType& self, size_t at) {
  return diagonal_of(q.symbols(), self, q.integer(at), q.integer(at + 1), q.integer(at + 2));
}

Decision diagonal(ShapeQuery& q) { return push_view(q, diagonal_at(q, q.tensor(0), 1)); }

Decision unfold(ShapeQuery& q) {
  return push_view(q, unfolded(q.symbols(), q.tensor(0), q.integer(1), q.size_at(2), q.size_at(3)));
}

Decision as_strided(ShapeQuery& q) {
  return push_view(q,
                   restrided(q.symbols(), q.tensor(0), q.sizes(1), q.sizes(2), maybe_size(q, 3)));
}

Decision view_as_real(ShapeQuery& q) {
  TensorType self = q.tensor(0);
  if (!is_complex(self.dtype) || self.conj) return Decision::forbid("not a plain complex tensor");
  self.dtype = real_of(self.dtype);
  for (Size& stride : self.strides) stride = stride * 2;
  self.offset = self.offset * 2;
  self.sizes.push_back(2);
  self.strides.push_back(1);
  return push_view(q, std::move(self));
}

Decision view_as_complex(ShapeQuery& q) {
  SymbolTable& s = q.symbols();
  TensorType self = q.tensor(0);
  const bool has_pairs =
      self.rank() > 0 && equal(s, self.sizes.back(), 2) && equal(s, self.strides.back(), 1);
  const bool has_dtype =
      self.dtype == DType::f16 || self.dtype == DType::f32 || self.dtype == DType::f64;
  if (!has_pairs || !has_dtype) return Decision::forbid("the last dimension holds no pairs");
  self.dtype = *complex_of(self.dtype);
  self.sizes.pop_back();
  self.strides.pop_back();
  for (int d = 0; d < self.rank(); ++d) {
    const bool even = equal(s, self.sizes[d], 1) || equal(s, modulo(self.strides[d], 2), 0);
    if (!even) return Decision::forbid("a stride is odd");
    self.strides[d] = floor_div(self.strides[d], 2);
  }
  if (!equal(s, modulo(self.offset, 2), 0)) return Decision::forbid("the offset is odd");
  self.offset = floor_div(self.offset, 2);
  return push_view(q, std::move(self));
}

Decision conj(ShapeQuery& q) {
  TensorType self = q.tensor(0);
  if (!is_complex(self.dtype)) return Decision::forbid("the tensor is not complex");
  self.conj = !self.conj;
  return push_view(q, std::move(self));
}

Decision neg_view(ShapeQuery& q) {
  TensorType self = q.tensor(0);
  self.neg = !self.neg;
  return push_view(q, std::move(self));
}

// A view and then a contiguous copy of it.
template <ShapeRule rule>
Decision copied(ShapeQuery& q) {
  if (Decision made = rule(q); !made) return made;
  for (auto& result : q.results) result = fresh_like(*result, result->sizes);
  return Decision::allow();
}

// A copy of self into whose view `view` the tensor src is written.
Decision written(ShapeQuery& q, const MaybeType& view) {
  const TensorType self = q.tensor(0), source = q.tensor(1);
  if (!view) return Decision::forbid("there is no such view of the tensor");
  if (!equal(q.symbols(), view->sizes, source.sizes))
    return Decision::forbid("src has not the sizes of the view");
  if (self.conj || self.neg) return Decision::forbid("the tensor has a lazy bit");
  q.push(exact_clone(q.symbols(), self));
  return Decision::allow();
}

Decision slice_scatter(ShapeQuery& q) { return written(q, slice_of(q, q.tensor(0), 2)); }

Decision select_scatter(ShapeQuery& q) {
  return written(q, selected(q.symbols(), q.tensor(0), q.integer(2), q.size_at(3)));
}

Decision diagonal_scatter(ShapeQuery& q) { return written(q, diagonal_at(q, q.tensor(0), 2)); }

Decision as_strided_scatter(ShapeQuery& q) {
  if (!is_contiguous(q.symbols(), q.tensor(0)))
    return Decision::forbid("torch takes contiguous inputs only");
  return written(q, restrided(q.symbols(), q.tensor(0), q.sizes(2), q.sizes(3), maybe_size(q, 4)));
}

// The gradient of a view: zeros of the input's sizes, in part overwritten.
Decision spread_gradient(ShapeQuery& q, const MaybeType& view) {
  const TensorType grad = q.tensor(0);
  if (!view || !expandable(q.symbols(), grad.sizes, view->sizes)) {
    return Decision::forbid("the gradient has not the sizes of the view");
  }
  q.push(fresh_like(grad, q.sizes(1)));
  return Decision::allow();
}

TensorType zeros_like_input(const ShapeQuery& q) { return fresh_like(q.tensor(0), q.sizes(1)); }

Decision slice_backward(ShapeQuery& q) {
  return spread_gradient(q, slice_of(q, zeros_like_input(q), 2));
}

Decision select_backward(ShapeQuery& q) {
  return spread_gradient(q, selected(q.symbols(), zeros_like_input(q), q.integer(2), q.size_at(3)));
}

Decision diagonal_backward(ShapeQuery& q) {
  return spread_gradient(q, diagonal_at(q, zeros_like_input(q), 2));
}

Decision unfold_backward(ShapeQuery& q) {
  const MaybeType view =
      unfolded(q.symbols(), zeros_like_input(q), q.integer(2), q.size_at(3), q.size_at(4));
  if (view && !equal(q.symbols(), view->sizes, q.tensor(0).sizes)) {
    return Decision::forbid("the gradient has not the sizes of the view");
  }
  return spread_gradient(q, view);
}

constexpr OpRow kRows[] = {
    {"aten::_conj", conj},
    {"aten::_neg_view", neg_view},
    {"aten::_reshape_alias", reshape_alias},
    {"aten::_unsafe_view", view, {.is_view = true}},
    {"aten::alias", alias},
    {"aten::as_strided", as_strided, {.names_places = true}},
    {"aten::detach", alias},
    {"aten::diagonal", diagonal},
    {"aten::expand", expand},
    {"aten::lift", alias, {.lifts = true}},
    {"aten::lift_fresh", alias, {.lifts = true, .recording = Recording::lift}},
    {"aten::permute", permute},
    {"aten::select.int", select},
    {"aten::slice.Tensor", slice},
    {"aten::squeeze", squeeze},
    {"aten::squeeze.dim", squeeze_dims},
    {"aten::squeeze.dims", squeeze_dims},
    {"aten::t", t},
    {"aten::transpose.int", transpose},
    {"aten::unfold", unfold},
    {"aten::unsqueeze", unsqueeze},
    {"aten::view", view},
    {"aten::view.dtype", view_dtype, {.recording = Recording::reads_bits}},
    {"aten::view_as_complex", view_as_complex},
    {"aten::view_as_real", view_as_real, {.recording = Recording::reads_bits}},
    // Copies of views.
    {"aten::alias_copy", copied<alias>},
    {"aten::as_strided_copy", copied<as_strided>, {.names_places = true}},
    {"aten::detach_copy", copied<alias>},
    {"aten::diagonal_copy", copied<diagonal>},
    {"aten::expand_copy", copied<expand>},
    {"aten::narrow_copy", copied<narrow_copy>},
    {"aten::permute_copy", copied<permute>},
    {"aten::select_copy.int", copied<select>},
    {"aten::slice_copy.Tensor", copied<slice>},
    {"aten::squeeze_copy", copied<squeeze>},
    {"aten::squeeze_copy.dim", copied<squeeze_dims>},
    {"aten::squeeze_copy.dims", copied<squeeze_dims>},
    {"aten::t_copy", copied<t>},
    {"aten::transpose_copy.int", copied<transpose>},
    {"aten::unfold_copy", copied<unfold>},
    {"aten::unsqueeze_copy", copied<unsqueeze>},
    {"aten::view_as_complex_copy", copied<view_as_complex>},
    {"aten::view_as_real_copy", copied<view_as_real>},
    {"aten::view_copy", copied<view>},
    {"aten::view_copy.dtype", copied<view_dtype>},
    // Writes into views, and gradients of views.
    {"aten::as_strided_scatter", as_strided_scatter, {.may_fail = true, .names_places = true}},
    {"aten::diagonal_backward", diagonal_backward},
    {"aten::diagonal_scatter", diagonal_scatter, {.may_fail = true}},
    {"aten::select_backward", select_backward},
    {"aten::select_scatter", select_scatter, {.may_fail = true}},
    {"aten::slice_backward", slice_backward},
    {"aten::slice_scatter", slice_scatter, {.may_fail = true}},
    {"aten::unfold_backward", unfold_backward},
};

}  // namespace

std::span<const OpRow> view_rows() { return kRows; }

}  // namespace smelt
