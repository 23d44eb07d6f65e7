// Writes into views as new tensors, gradients of views, and scatters of one element per row: an
// element comes from what is written where it is hit, else from what was there.
#include <algorithm>

#include "ops/meanings/families.h"
#include "ops/meanings/update_rules.h"
#include "ops/meanings/view_places.h"
#include "ops/rules/element.h"
#include "ops/rules/geometry.h"
#include "ops/rules/layout.h"

namespace smelt {
namespace {

// Whether an element is written, and from where: a place that may be loaded from in any case.
struct Hit {
  Expr inside;
  Indices place;
};

// (.., dim, start, end, step), the dimension's number at argument `first`.
Hit hit_slice(ElementQuery& q, const Sizes& sizes, size_t first) {
  const int dim = dim_of(q.integer(first), static_cast<int>(sizes.size()));
  const Size step = q.size_at(first + 3);
  SymbolTable symbols = q.graph().symbols;
  const MaybeType view = sliced(symbols, fresh(DType::f32, {}, {sizes[dim]}), 0,
                                optional_size(q, first + 1), optional_size(q, first + 2), step);
  SMELT_CHECK(view.has_value(), "a slice that torch refuses");
  const Size start = view->offset, length = view->sizes[0];
  const Index offset = q.at()[dim] - Index(start);
  Expr inside = is_at_least(q, offset, 0) & is_below(q, offset, length * step);
  Index along = offset;
  if (!step.is(1)) {
    inside = inside & (q.index_value(remainder(offset, step, q.extents())) == 0.0);
    along = quotient(offset, step, q.extents());
  }
  Indices place = q.at();
  place[dim] = clamped_index(q, along, length);
  return {inside, place};
}

// (.., dim, index)
Hit hit_select(ElementQuery& q, const Sizes& sizes, size_t first) {
  const int dim = dim_of(q.integer(first), static_cast<int>(sizes.size()));
  const Size index = select_index(q.graph(), sizes[dim], q.size_at(first + 1));
  const Expr inside = q.index_value(q.at()[dim]) == q.index_value(Index(index));
  return {inside, erased(q.at(), dim)};
}

// (.., offset, dim1, dim2); `length` of the diagonal.
Hit hit_diagonal(ElementQuery& q, const Sizes& sizes, size_t first, const Size& length) {
  const int rank = static_cast<int>(sizes.size());
  const int64_t offset = q.integer(first);
  const int a = dim_of(q.integer(first + 1), rank), b = dim_of(q.integer(first + 2), rank);
  const Index row = q.at()[a], column = q.at()[b];
  const Expr inside = q.index_value(column - row) == static_cast<double>(offset);
  const Index along = offset >= 0 ? row : column;
  Indices place = erased(erased(q.at(), std::max(a, b)), std::min(a, b));
  place.push_back(clamped_index(q, along, length));
  return {inside, place};
}

// The written element where the hit is inside, else argument 0's; f16 and bf16 pass through f32.
Expr written(ElementQuery& q, const Hit& hit) {
  const DType dtype = q.result().dtype, between = accumulate_of(dtype);
  const Expr source = q.load(q.value(1), hit.place).to(dtype).to(between);
  return select(hit.inside, source, q.load(q.value(0), q.at()).to(between));
}

// The gradient where the hit is inside, else 0. It may be one element for a whole dimension.
Expr spread(ElementQuery& q, Hit hit) {
  const DType between = accumulate_of(q.result().dtype);
  for (size_t d = 0; d < hit.place.size(); ++d) {
    if (q.type(0).sizes[d].is(1)) hit.place[d] = 0;
  }
  return select(hit.inside, q.load(q.value(0), hit.place).to(between), 0.0);
}

Expr slice_scatter(ElementQuery& q) { return written(q, hit_slice(q, q.type(0).sizes, 2)); }
Expr select_scatter(ElementQuery& q) { return written(q, hit_select(q, q.type(0).sizes, 2)); }
Expr diagonal_scatter(ElementQuery& q) {
  return written(q, hit_diagonal(q, q.type(0).sizes, 2, q.type(1).sizes.back()));
}
Expr slice_backward(ElementQuery& q) { return spread(q, hit_slice(q, q.result().sizes, 2)); }
Expr select_backward(ElementQuery& q) { return spread(q, hit_select(q, q.result().sizes, 2)); }
Expr diagonal_backward(ElementQuery& q) {
  return spread(q, hit_diagonal(q, q.result().sizes, 2, q.type(0).sizes.back()));
}
// diag_embed(self, offset, dim1, dim2)
Expr diag_embed(ElementQuery& q) {
  return spread(q, hit_diagonal(q, q.result().sizes, 1, q.type(0).sizes.back()));
}

// scatter(self, dim, index, src or value) of one index per row: an element is hit where its place
// is the row's index.
Hit hit_row(ElementQuery& q) {
  const int dim = dim_of(q.integer(1), q.type(0).rank());
  Indices place = q.at();
  place[dim] = 0;
  const Index index = q.checked_index(q.load(q.value(2), place), q.type(0).sizes[dim], false);
  return {q.index_value(q.at()[dim]) == q.index_value(index), place};
}

enum class Scatter : uint8_t { put, add };

template <Scatter form>
Expr scatter_one(ElementQuery& q) {
  const Hit hit = hit_row(q);
  const DType dtype = q.result().dtype, between = accumulate_of(dtype);
  const Expr source = is_number_at(q, 3) ? number_element(q, 3) : q.load(q.value(3), hit.place);
  const Expr written = source.to(between), self = q.load(q.value(0), q.at()).to(between);
  return select(hit.inside, form == Scatter::add ? self + written : written, self);
}

Decision allows_scatter_one(const NodeReader& q) {
  const TensorType &self = q.type(0), &index = q.type(2);
  if (self.rank() == 0 || index.rank() != self.rank()) return Decision::forbid("a scalar");
  const int dim = dim_of(q.integer(1), self.rank());
  if (!index.sizes[dim].is(1)) return Decision::forbid("several indices per row");
  for (int d = 0; d < self.rank(); ++d) {
    if (d != dim && !(index.sizes[d] == self.sizes[d]))
      return Decision::forbid("rows without an index");
  }
  return is_number_at(q, 3) ? allows_number(q, 3) : Decision::allow();
}

// The element that is loaded in vain must exist.
template <size_t source>
Decision has_elements(const NodeReader& q) {
  if (all_certainly_positive(q.type(source).sizes)) return Decision::allow();
  return Decision::forbid("nothing may be written");
}

// A gradient of fewer dimensions than the view is expanded first.
template <int removed>
Decision gradient_fits(const NodeReader& q) {
  if (q.type(0).rank() + removed != q.result().rank())
    return Decision::forbid("the gradient is expanded");
  return has_elements<0>(q);
}

constexpr Meaning scatter(std::string_view name, ElementRule rule,
                          Decision (*allows)(const NodeReader&)) {
  return elsewhere(Pattern::gather, name, rule, allows, 2);
}

// With one index per row it is decided element by element; else it is an update.
constexpr Meaning scatter(std::string_view name, ElementRule rule, const UpdateRule& update,
                          DecomposeRule decompose = nullptr) {
  Meaning row = scatter(name, rule, allows_scatter_one);
  row.update = &update;
  row.decompose = decompose;
  return row;
}

constexpr Meaning kRows[] = {
    scatter("aten::scatter.src", scatter_one<Scatter::put>, kScatterPut),
    with_numbers(scatter("aten::scatter.value", scatter_one<Scatter::put>, kScatterPut), {3}),
    scatter("aten::scatter_add", scatter_one<Scatter::add>, kScatterAdd, add_in_single_precision),
    scatter("aten::slice_scatter", slice_scatter, has_elements<1>),
    scatter("aten::select_scatter", select_scatter, has_elements<1>),
    scatter("aten::diagonal_scatter", diagonal_scatter, has_elements<1>),
    scatter("aten::slice_backward", slice_backward, gradient_fits<0>),
    scatter("aten::select_backward", select_backward, gradient_fits<1>),
    scatter("aten::diagonal_backward", diagonal_backward, gradient_fits<1>),
    scatter("aten::diag_embed", diag_embed, gradient_fits<1>),
};

}  // namespace

std::span<const Meaning> scatter_meanings() { return kRows; }

}  // namespace smelt
