// Views and their copies: each element is one of argument 0, at another place.
#include <algorithm>

#include "ops/meanings/families.h"
#include "ops/meanings/view_places.h"
#include "ops/rules/element.h"
#include "ops/rules/geometry.h"
#include "ops/rules/layout.h"

namespace smelt {

Size slice_start(const Graph& graph, const Size& size, std::optional<Size> start,
                 std::optional<Size> end, const Size& step) {
  // The questions asked here were asked when the node was typed; their guards are the graph's.
  SymbolTable symbols = graph.symbols;
  const MaybeType view = sliced(symbols, fresh(DType::f32, {}, {size}), 0, start, end, step);
  SMELT_CHECK(view.has_value(), "a slice that torch refuses");
  return view->offset;
}

Size select_index(const Graph& graph, const Size& size, const Size& index) {
  SymbolTable symbols = graph.symbols;
  const MaybeType view = selected(symbols, fresh(DType::f32, {}, {size}), 0, index);
  SMELT_CHECK(view.has_value(), "an index that torch refuses");
  return view->offset;
}

Indices inserted(Indices at, int dim, Index index) {
  at.insert(at.begin() + dim, std::move(index));
  return at;
}

Indices erased(Indices at, int dim) {
  at.erase(at.begin() + dim);
  return at;
}

std::optional<Size> optional_size(const NodeReader& q, size_t i) {
  if (q.is_none(i)) return std::nullopt;
  return q.size_at(i);
}

namespace {

// The element of argument 0 at the place the function gives.
template <Indices (*place)(ElementQuery&)>
Expr from(ElementQuery& q) {
  return q.load(q.value(0), place(q));
}

int rank(const NodeReader& q) { return q.type(0).rank(); }

Indices same(ElementQuery& q) { return q.at(); }

Indices reshaped(ElementQuery& q) {
  return reshaped_place(q.at(), q.result().sizes, q.type(0).sizes, q.extents());
}

Indices permuted(ElementQuery& q) {
  Indices place(q.at().size());
  const std::vector<int64_t> dims = q.integers(1);
  for (size_t d = 0; d < dims.size(); ++d) place[dim_of(dims[d], rank(q))] = q.at()[d];
  return place;
}

Indices transposed(ElementQuery& q) {
  Indices place = q.at();
  if (!place.empty()) {
    std::swap(place[dim_of(q.integer(1), rank(q))], place[dim_of(q.integer(2), rank(q))]);
  }
  return place;
}

Indices reversed(ElementQuery& q) {
  Indices place = q.at();
  std::reverse(place.begin(), place.end());
  return place;
}

Indices expanded(ElementQuery& q) {
  return broadcast_place(q.graph(), q.at(), q.result().sizes, q.type(0).sizes);
}

Indices unsqueezed(ElementQuery& q) { return erased(q.at(), dim_of(q.integer(1), rank(q) + 1)); }

// squeeze(self, [dims]): the dimensions of size 1 among those named, or among all.
Indices squeezed(ElementQuery& q) {
  std::vector<bool> named(std::max(rank(q), 1), q.size() < 2);
  if (q.size() >= 2) {
    for (int64_t dim : q.integers(1)) named[dim_of(dim, rank(q))] = true;
  }
  Indices place;
  size_t next = 0;
  for (int d = 0; d < rank(q); ++d) {
    const bool removed = named[d] && is_one(q.graph(), q.type(0).sizes[d]);
    place.push_back(removed ? Index(0) : q.at()[next++]);
  }
  SMELT_CHECK(next == q.at().size(), "a squeeze of other dimensions");
  return place;
}

// slice(self, dim, start, end, step)
Indices sliced(ElementQuery& q) {
  const int dim = dim_of(q.integer(1), rank(q));
  const Size start = slice_start(q.graph(), q.type(0).sizes[dim], optional_size(q, 2),
                                 optional_size(q, 3), q.size_at(4));
  Indices place = q.at();
  place[dim] = Index(start) + place[dim] * q.size_at(4);
  return place;
}

Indices narrowed(ElementQuery& q) {
  Indices place = q.at();
  const int dim = dim_of(q.integer(1), rank(q));
  place[dim] = place[dim] + Index(q.size_at(2));
  return place;
}

Indices selected(ElementQuery& q) {
  const int dim = dim_of(q.integer(1), rank(q));
  const Size index = select_index(q.graph(), q.type(0).sizes[dim], q.size_at(2));
  return inserted(q.at(), dim, Index(index));
}

// diagonal(self, offset, dim1, dim2): the last dimension runs along it.
Indices diagonal(ElementQuery& q) {
  const int64_t offset = q.integer(1);
  const int a = dim_of(q.integer(2), rank(q)), b = dim_of(q.integer(3), rank(q));
  Indices place = q.at();
  const Index along = place.back();
  place.pop_back();
  const Index row = along + Index(std::max<int64_t>(-offset, 0));
  const Index column = along + Index(std::max<int64_t>(offset, 0));
  place = inserted(std::move(place), std::min(a, b), a < b ? row : column);
  return inserted(std::move(place), std::max(a, b), a < b ? column : row);
}

// unfold(self, dim, size, step): the last dimension runs inside the window.
Indices unfolded(ElementQuery& q) {
  Indices place = q.at();
  const Index inside = place.back();
  place.pop_back();
  if (rank(q) == 0) return {};
  const int dim = dim_of(q.integer(1), rank(q));
  place[dim] = place[dim] * q.size_at(3) + inside;
  return place;
}

Indices flipped(ElementQuery& q) {
  Indices place = q.at();
  for (int64_t item : q.integers(1)) {
    if (place.empty()) break;
    const int dim = dim_of(item, rank(q));
    place[dim] = Index(q.type(0).sizes[dim] - 1) - place[dim];
  }
  return place;
}

Index rolled_index(const Index& index, const Size& shift, const Size& size,
                   const loops::Extents& extents) {
  const Size start = modulo(size - shift, size);
  return start.is(0) ? index : remainder(index + Index(start), size, extents);
}

// roll(self, shifts, dims); without dims the elements are one row.
Indices rolled(ElementQuery& q) {
  const Sizes shifts = q.sizes(1);
  const std::vector<int64_t> dims = q.integers(2);
  const Sizes& sizes = q.type(0).sizes;
  if (dims.empty()) {
    const Index flat = loops::ravel(q.at(), sizes);
    return loops::unravel(rolled_index(flat, shifts[0], product(sizes), q.extents()), sizes,
                          q.extents());
  }
  Indices place = q.at();
  for (size_t i = 0; i < dims.size(); ++i) {
    const int dim = dim_of(dims[i], rank(q));
    place[dim] = rolled_index(place[dim], shifts[i], sizes[dim], q.extents());
  }
  return place;
}

Decision allows_roll(const NodeReader& q) {
  if (all_certainly_positive(q.type(0).sizes)) return Decision::allow();
  return Decision::forbid("a roll of nothing");
}

Indices repeated(ElementQuery& q) {
  const Sizes& sizes = q.type(0).sizes;
  const size_t lead = q.at().size() - sizes.size();
  Indices place;
  for (size_t d = 0; d < sizes.size(); ++d) {
    const bool once = sizes[d] == q.result().sizes[lead + d];
    place.push_back(once             ? q.at()[lead + d]
                    : sizes[d].is(1) ? Index(0)
                                     : remainder(q.at()[lead + d], sizes[d], q.extents()));
  }
  return place;
}

constexpr Meaning view(std::string_view name, ElementRule rule,
                       Decision (*allows)(const NodeReader&) = nullptr) {
  return elsewhere(Pattern::view, name, rule, allows);
}

constexpr Meaning kRows[] = {
    view("aten::_unsafe_view", from<reshaped>),
    view("aten::alias", from<same>),
    view("aten::alias_copy", from<same>),
    view("aten::detach", from<same>),
    view("aten::detach_copy", from<same>),
    view("aten::diagonal", from<diagonal>),
    view("aten::diagonal_copy", from<diagonal>),
    view("aten::expand", from<expanded>),
    view("aten::expand_copy", from<expanded>),
    view("aten::flip", from<flipped>),
    view("aten::lift", from<same>),
    view("aten::lift_fresh", from<same>),
    view("aten::narrow_copy", from<narrowed>),
    view("aten::permute", from<permuted>),
    view("aten::permute_copy", from<permuted>),
    view("aten::repeat", from<repeated>),
    view("aten::roll", from<rolled>, allows_roll),
    view("aten::select.int", from<selected>),
    view("aten::select_copy.int", from<selected>),
    view("aten::slice.Tensor", from<sliced>),
    view("aten::slice_copy.Tensor", from<sliced>),
    view("aten::squeeze", from<squeezed>),
    view("aten::squeeze.dim", from<squeezed>),
    view("aten::squeeze.dims", from<squeezed>),
    view("aten::squeeze_copy", from<squeezed>),
    view("aten::squeeze_copy.dim", from<squeezed>),
    view("aten::squeeze_copy.dims", from<squeezed>),
    view("aten::t", from<reversed>),
    view("aten::t_copy", from<reversed>),
    view("aten::transpose.int", from<transposed>),
    view("aten::transpose_copy.int", from<transposed>),
    view("aten::unfold", from<unfolded>),
    view("aten::unfold_copy", from<unfolded>),
    view("aten::unsqueeze", from<unsqueezed>),
    view("aten::unsqueeze_copy", from<unsqueezed>),
    view("aten::view", from<reshaped>),
    view("aten::view_copy", from<reshaped>),
};

}  // namespace

std::span<const Meaning> view_meanings() { return kRows; }

}  // namespace smelt
