// Gathering and scattering by tensors of indices.
#include "ops/rules/geometry.h"
#include "ops/rules/iterate.h"
#include "ops/rules/layout.h"
#include "ops/rules/promotion.h"
#include "ops/shapes/families.h"

namespace smelt {
namespace {

bool is_index(const TensorType& type) {
  return type.dtype == DType::i64 || type.dtype == DType::i32;
}

Size dim_size(const TensorType& type, int dim) {
  return type.rank() == 0 ? Size(1) : type.sizes[dim];
}

// Is `inner` no larger than `outer`, the dimension `free` aside?
bool fits_inside(SymbolTable& s, const TensorType& inner, const TensorType& outer, int free) {
  if (std::max(inner.rank(), 1) != std::max(outer.rank(), 1)) return false;
  for (int d = 0; d < std::max(inner.rank(), 1); ++d) {
    if (d != free && less(s, dim_size(outer, d), dim_size(inner, d))) return false;
  }
  return true;
}

// gather(self, dim, index)
Decision gather(ShapeQuery& q) {
  const TensorType self = q.tensor(0), index = q.tensor(2);
  const std::optional<int> dim = wrap_dim(q.integer(1), self.rank());
  if (!dim || !is_index(index) || !takes(kAll, self.dtype) || index.device != self.device) {
    return Decision::forbid("no rule for these operands");
  }
  if (!fits_inside(q.symbols(), index, self, *dim))
    return Decision::forbid("the index does not fit");
  q.push(fresh_like(self, index.sizes));
  return Decision::allow();
}

// Which scatters may have another source dtype or a reduction.
enum class Source : uint8_t { tensor, number };

// scatter*(self, dim, index, src or value): contiguous, in the sizes of self.
template <Source source>
Decision scatter(ShapeQuery& q) {
  SymbolTable& s = q.symbols();
  const TensorType self = q.tensor(0), index = q.tensor(2), src = q.tensor(3);
  const std::optional<int> dim = wrap_dim(q.integer(1), self.rank());
  if (!dim || !is_index(index) || !takes(kAll, self.dtype) || index.device != self.device) {
    return Decision::forbid("no rule for these operands");
  }
  if (!is_empty(s, index.sizes) && !fits_inside(s, index, self, *dim)) {
    return Decision::forbid("the index does not fit");
  }
  if (source == Source::tensor) {
    if (src.dtype != self.dtype || src.device != self.device)
      return Decision::forbid("src differs in dtype or device");
    if (!is_empty(s, index.sizes) && !fits_inside(s, index, src, -1))
      return Decision::forbid("src does not fit");
  } else if (is_complex(src.dtype) && !is_complex(self.dtype)) {
    return Decision::forbid("a complex value in a real tensor");
  }
  q.push(fresh_like(self, self.sizes));
  return Decision::allow();
}

Decision scatter_reduce(ShapeQuery& q) {
  const std::string_view reduce = q.text(4);
  const bool known = reduce == "sum" || reduce == "prod" || reduce == "mean" || reduce == "amax" ||
                     reduce == "amin";
  if (!known || !takes(kNumbers, q.tensor(0).dtype))
    return Decision::forbid("no rule for this reduction");
  return scatter<Source::tensor>(q);
}

// Do the slices of source along the dimension fit those of self, one for each index?
bool slices_fit(SymbolTable& s, const TensorType& self, const TensorType& index,
                const TensorType& source, int dim) {
  if (index.rank() > 1 || source.rank() != self.rank()) return false;
  const Size count = index.rank() == 0 ? Size(1) : index.sizes[0];
  if (!equal(s, dim_size(source, dim), count)) return false;
  for (int d = 0; d < self.rank(); ++d) {
    if (d != dim && !equal(s, self.sizes[d], source.sizes[d])) return false;
  }
  return true;
}

// index_add, index_copy (self, dim, index, source)
template <bool only_i64>
Decision index_slices(ShapeQuery& q) {
  const TensorType self = q.tensor(0), index = q.tensor(2), source = q.tensor(3);
  const std::optional<int> dim = wrap_dim(q.integer(1), self.rank());
  const bool index_fits = only_i64 ? index.dtype == DType::i64 : is_index(index);
  if (!dim || !index_fits || !takes(kAll, self.dtype) || source.dtype != self.dtype ||
      index.device != self.device || source.device != self.device) {
    return Decision::forbid("no rule for these operands");
  }
  if (!slices_fit(q.symbols(), self, index, source, *dim))
    return Decision::forbid("the slices do not fit");
  q.push(fresh_like(self, self.sizes));
  return Decision::allow();
}

// index_reduce(self, dim, index, source, reduce)
Decision index_reduce(ShapeQuery& q) {
  const std::string_view reduce = q.text(4);
  const bool known = reduce == "prod" || reduce == "mean" || reduce == "amax" || reduce == "amin";
  if (!known || !takes(kNumbers, q.tensor(0).dtype))
    return Decision::forbid("no rule for this reduction");
  return index_slices<false>(q);
}

// index_fill(self, dim, index, value)
Decision index_fill(ShapeQuery& q) {
  const TensorType self = q.tensor(0), index = q.tensor(2), value = q.tensor(3);
  const std::optional<int> dim = wrap_dim(q.integer(1), self.rank());
  if (!dim || index.dtype != DType::i64 || index.rank() > 1 || value.rank() != 0 ||
      !takes(kAll, self.dtype)) {
    return Decision::forbid("no rule for these operands");
  }
  if (is_complex(value.dtype) && !is_complex(self.dtype))
    return Decision::forbid("a complex value in a real tensor");
  q.push(preserved(q.symbols(), self));
  return Decision::allow();
}

// index_select(self, dim, index)
Decision index_select(ShapeQuery& q) {
  SymbolTable& s = q.symbols();
  const TensorType self = q.tensor(0), index = q.tensor(2);
  const std::optional<int> dim = wrap_dim(q.integer(1), self.rank());
  if (!dim || !is_index(index) || index.rank() > 1 || !takes(kAll, self.dtype) ||
      index.device != self.device) {
    return Decision::forbid("no rule for these operands");
  }
  const Size count = index.rank() == 0 ? Size(1) : index.sizes[0];
  if (is_empty(s, self.sizes)) return Decision::forbid("an empty tensor");
  if (self.rank() == 0 && !equal(s, count, 1)) return Decision::forbid("a scalar has one element");
  Sizes sizes = self.sizes;
  if (!sizes.empty()) sizes[*dim] = count;
  q.push(fresh_like(self, std::move(sizes)));
  return Decision::allow();
}

// embedding(weight, indices, ...)
Decision embedding(ShapeQuery& q) {
  const TensorType weight = q.tensor(0), indices = q.tensor(1);
  if (weight.rank() != 2 || !is_index(indices) || !takes(kAll, weight.dtype) ||
      indices.device != weight.device) {
    return Decision::forbid("no rule for these operands");
  }
  if (is_empty(q.symbols(), weight.sizes)) return Decision::forbid("an empty weight");
  Sizes sizes = indices.sizes;
  sizes.push_back(weight.sizes[1]);
  q.push(fresh_like(weight, std::move(sizes)));
  return Decision::allow();
}

// embedding_dense_backward(grad, indices, num_weights, ...)
Decision embedding_backward(ShapeQuery& q) {
  const TensorType grad = q.tensor(0), indices = q.tensor(1);
  if (grad.rank() == 0 || !is_index(indices) || !takes(kFloats, grad.dtype)) {
    return Decision::forbid("no rule for these operands");
  }
  const Sizes lead(grad.sizes.begin(), grad.sizes.end() - 1);
  if (!equal(q.symbols(), lead, indices.sizes))
    return Decision::forbid("the gradient does not fit");
  q.push(fresh_like(grad, {q.size_at(2), grad.sizes.back()}));
  return Decision::allow();
}

// One index per dimension that has one, broadcast together.
struct Indices {
  std::vector<MaybeType> at;  // by dimension of self
  Sizes sizes;                // of the broadcast indices
};

Decision read_indices(const ShapeQuery& q, const TensorType& self, size_t arg, Indices& out) {
  SymbolTable& s = q.symbols();
  const ArgList& list = q.arg(arg).get<ArgList>();
  if (list.empty() || static_cast<int>(list.size()) > self.rank())
    return Decision::forbid("too many or no indices");
  std::vector<TensorType> given;
  for (const Arg& item : list) {
    out.at.emplace_back();
    if (!item.is<Ref>()) continue;
    const TensorType index = q.type(item.get<Ref>());
    if (!is_index(index)) return Decision::forbid("indexing by a mask depends on its values");
    if (index.device != self.device && !index.device.is_cpu())
      return Decision::forbid("an index is elsewhere");
    given.push_back(index);
    out.at.back() = index;
  }
  if (given.empty()) return Decision::forbid("no indices");
  out.at.resize(self.rank());
  std::optional<Sizes> sizes = broadcast_all(s, given);
  if (!sizes) return Decision::forbid("the indices do not broadcast");
  out.sizes = std::move(*sizes);
  for (MaybeType& index : out.at) {
    if (!index) continue;
    index = expanded(s, *index, out.sizes);
    const bool moves = index->dtype != DType::i64 || index->device != self.device;
    if (moves) index = preserved(s, *index);
  }
  return Decision::allow();
}

// The indexed dimensions stand together: the result has theirs in that place, else in front.
bool adjacent(const std::vector<MaybeType>& indices) {
  int runs = 0;
  for (size_t d = 0; d < indices.size(); ++d) runs += indices[d] && (d == 0 || !indices[d - 1]);
  return runs == 1;
}

// The result of self[indices], as TensorIterator lays it out: its operands are self with the index
// dimensions inserted at stride 0, and the indices.
Decision indexed(const ShapeQuery& q, TensorType self, Indices indices, TensorType& result) {
  SymbolTable& s = q.symbols();
  if (!adjacent(indices.at)) {
    std::vector<int64_t> order;
    for (bool with_index : {true, false}) {
      for (int d = 0; d < self.rank(); ++d) {
        if (indices.at[d].has_value() == with_index) order.push_back(d);
      }
    }
    self = *permuted(self, order);
    std::vector<MaybeType> moved;
    for (int64_t d : order) moved.push_back(indices.at[d]);
    indices.at = std::move(moved);
  }
  TensorType source = fresh(self.dtype, self.device, {}, {});
  Sizes ones_before, ones_after;
  bool inserted = false;
  for (int d = 0; d < self.rank(); ++d) {
    if (!indices.at[d]) {
      source.sizes.push_back(self.sizes[d]);
      source.strides.push_back(self.strides[d]);
      (inserted ? ones_after : ones_before).push_back(1);
      continue;
    }
    if (equal(s, self.sizes[d], 0) && !is_empty(s, indices.sizes))
      return Decision::forbid("an index into nothing");
    if (inserted) continue;
    inserted = true;
    source.sizes.insert(source.sizes.end(), indices.sizes.begin(), indices.sizes.end());
    source.strides.insert(source.strides.end(), indices.sizes.size(), Size(0));
  }
  std::vector<TensorType> operands = {source};
  for (const MaybeType& index : indices.at) {
    if (!index) continue;
    TensorType operand = *index;
    operand.sizes.insert(operand.sizes.begin(), ones_before.begin(), ones_before.end());
    operand.sizes.insert(operand.sizes.end(), ones_after.begin(), ones_after.end());
    operand.strides = *view_strides(s, index->sizes, index->strides, operand.sizes);
    operands.push_back(std::move(operand));
  }
  // CUDA kernels want the indices in one layout.
  for (size_t i = 2; i < operands.size() && !self.device.is_cpu(); ++i) {
    if (equal(s, operands[i].strides, operands[1].strides)) continue;
    for (size_t k = 1; k < operands.size(); ++k) {
      if (!is_contiguous(s, operands[k])) operands[k] = fresh_like(operands[k], operands[k].sizes);
    }
    break;
  }
  std::optional<Sizes> sizes = broadcast_all(s, operands);
  if (!sizes) return Decision::forbid("the indices do not broadcast");
  Sizes strides = iterated_strides(s, operands, *sizes);
  result = fresh(self.dtype, self.device, std::move(*sizes), std::move(strides));
  return Decision::allow();
}

// nonzero_static(self, size): row by row, where nonzero() gives columns.
Decision nonzero_static(ShapeQuery& q) {
  TensorType self = q.tensor(0);
  if (!self.device.is_cpu()) return Decision::forbid("no rule for this device");
  const Size count = q.size_at(1);
  if (count.is_known() && count.known() < 0) return Decision::forbid("no such size");
  const int64_t rank = self.rank();
  self.dtype = DType::i64;
  q.push(fresh_like(self, {count, Size(rank)}));
  return Decision::allow();
}

Decision index(ShapeQuery& q) {
  const TensorType self = q.tensor(0);
  Indices indices;
  TensorType result;
  if (!takes(kAll, self.dtype)) return Decision::forbid("no rule for this dtype");
  if (Decision made = read_indices(q, self, 1, indices); !made) return made;
  if (Decision made = indexed(q, self, std::move(indices), result); !made) return made;
  q.push(std::move(result));
  return Decision::allow();
}

// Do the indices make sense where only self's type is the result? Masks count, if the values are a
// scalar.
Decision check_masks(const ShapeQuery& q, const TensorType& self, size_t arg) {
  SymbolTable& s = q.symbols();
  int dim = 0;
  for (const Arg& item : q.arg(arg).get<ArgList>()) {
    if (!item.is<Ref>()) {
      ++dim;
      continue;
    }
    const TensorType mask = q.type(item.get<Ref>());
    if (mask.dtype != DType::b8) return Decision::forbid("masks and indices together");
    if (dim + mask.rank() > self.rank()) return Decision::forbid("too many indices");
    for (int d = 0; d < mask.rank(); ++d) {
      if (!equal(s, mask.sizes[d], self.sizes[dim + d]))
        return Decision::forbid("a mask does not fit");
    }
    dim += mask.rank();
  }
  return Decision::allow();
}

// index_put(self, indices, values, accumulate)
Decision index_put(ShapeQuery& q) {
  SymbolTable& s = q.symbols();
  const TensorType self = q.tensor(0), values = q.tensor(2);
  const bool here = values.device == self.device || (values.rank() == 0 && values.device.is_cpu());
  if (!takes(kAll, self.dtype) || values.dtype != self.dtype || !here) {
    return Decision::forbid("the values differ in dtype or device");
  }
  int masks = 0;
  for (const Arg& item : q.arg(1).get<ArgList>()) {
    if (item.is<Ref>() && q.type(item.get<Ref>()).dtype == DType::b8) ++masks;
  }
  // How many values a mask wants is known when it runs; the result is like self in any case.
  if (masks > 0) {
    if (Decision fit = check_masks(q, self, 1); !fit) return fit;
  } else {
    Indices indices;
    TensorType place;
    if (Decision made = read_indices(q, self, 1, indices); !made) return made;
    if (Decision made = indexed(q, self, std::move(indices), place); !made) return made;
    if (!expandable(s, values.sizes, place.sizes))
      return Decision::forbid("the values do not broadcast");
  }
  q.push(preserved(s, self));
  return Decision::allow();
}

// masked_scatter(self, mask, source)
Decision masked_scatter(ShapeQuery& q) {
  const TensorType self = q.tensor(0), mask = q.tensor(1), source = q.tensor(2);
  std::optional<Sizes> sizes = broadcast(q.symbols(), self.sizes, mask.sizes);
  if (mask.dtype != DType::b8 || source.dtype != self.dtype || !sizes || !takes(kAll, self.dtype)) {
    return Decision::forbid("no rule for these operands");
  }
  q.push(fresh_like(self, std::move(*sizes)));
  return Decision::allow();
}

Decision take(ShapeQuery& q) {
  const TensorType self = q.tensor(0), index = q.tensor(1);
  if (index.dtype != DType::i64 || !takes(kAll, self.dtype))
    return Decision::forbid("no rule for these operands");
  if (is_empty(q.symbols(), self.sizes) && !is_empty(q.symbols(), index.sizes))
    return Decision::forbid("an empty tensor");
  q.push(fresh_like(self, index.sizes));
  return Decision::allow();
}

// put(self, index, source, accumulate)
// The places that (self, mask, indices, ..) names, where the mask is true.
Decision masked_places(const ShapeQuery& q, TensorType& places) {
  const TensorType self = q.tensor(0), mask = q.tensor(1);
  Indices indices;
  if (!takes(kAll, self.dtype) || mask.dtype != DType::b8 || mask.device != self.device ||
      is_empty(q.symbols(), self.sizes))
    return Decision::forbid("no rule for these operands");
  if (Decision made = read_indices(q, self, 2, indices); !made) return made;
  return indexed(q, self, std::move(indices), places);
}

// _unsafe_masked_index(self, mask, indices, fill)
Decision masked_index(ShapeQuery& q) {
  TensorType places;
  if (Decision made = masked_places(q, places); !made) return made;
  const std::optional<Sizes> sizes = broadcast(q.symbols(), places.sizes, q.tensor(1).sizes);
  if (!sizes) return Decision::forbid("the mask does not broadcast");
  q.push(fresh_like(q.tensor(0), *sizes));
  return Decision::allow();
}

// _unsafe_masked_index_put_accumulate(self, mask, indices, values)
Decision masked_index_put(ShapeQuery& q) {
  SymbolTable& s = q.symbols();
  const TensorType self = q.tensor(0), values = q.tensor(3);
  TensorType places;
  if (Decision made = masked_places(q, places); !made) return made;
  const std::optional<Sizes> sizes = broadcast(s, values.sizes, q.tensor(1).sizes);
  if (!sizes || values.dtype != self.dtype || values.device != self.device ||
      !expandable(s, *sizes, places.sizes))
    return Decision::forbid("the values do not fit");
  q.push(preserved(s, self));
  return Decision::allow();
}

Decision put(ShapeQuery& q) {
  SymbolTable& s = q.symbols();
  const TensorType self = q.tensor(0), index = q.tensor(1), source = q.tensor(2);
  if (index.dtype != DType::i64 || source.dtype != self.dtype || !takes(kAll, self.dtype) ||
      !equal(s, index.numel(), source.numel()) ||
      (is_empty(s, self.sizes) && !is_empty(s, index.sizes))) {
    return Decision::forbid("no rule for these operands");
  }
  q.push(preserved(s, self));
  return Decision::allow();
}

constexpr OpRow kRows[] = {
    {"aten::_unsafe_index.Tensor", index, {.may_fail = true}},
    {"aten::_unsafe_index_put", index_put, {.may_fail = true}},
    {"aten::_unsafe_masked_index", masked_index, {.may_fail = true}},
    {"aten::_unsafe_masked_index_put_accumulate", masked_index_put, {.may_fail = true}},
    {"aten::embedding", embedding, {.may_fail = true}},
    {"aten::embedding_dense_backward", embedding_backward, {.may_fail = true}},
    {"aten::gather", gather, {.may_fail = true, .takes_elements = true}},
    {"aten::index.Tensor",
     index,
     {.may_fail = true,
      .by_masks_only = true,
      .sized_by_argument = 1,
      .takes_elements = true,
      .selects = Selection::indexed}},
    {"aten::nonzero_static", nonzero_static},
    {"aten::index_add", index_slices<false>, {.may_fail = true, .keeps_first_shape = true}},
    {"aten::index_copy", index_slices<true>, {.may_fail = true, .keeps_first_shape = true}},
    {"aten::index_fill.int_Scalar", index_fill, {.may_fail = true, .keeps_first_shape = true}},
    {"aten::index_fill.int_Tensor", index_fill, {.may_fail = true, .keeps_first_shape = true}},
    {"aten::index_put", index_put, {.may_fail = true, .keeps_first_shape = true}},
    {"aten::index_reduce", index_reduce, {.may_fail = true, .keeps_first_shape = true}},
    {"aten::index_select", index_select, {.may_fail = true, .takes_elements = true}},
    {"aten::masked_scatter", masked_scatter, {.may_fail = true, .keeps_first_shape = true}},
    {"aten::put", put, {.may_fail = true}},
    {"aten::scatter.src", scatter<Source::tensor>, {.may_fail = true, .keeps_first_shape = true}},
    {"aten::scatter.value", scatter<Source::number>, {.may_fail = true, .keeps_first_shape = true}},
    {"aten::scatter_add", scatter<Source::tensor>, {.may_fail = true, .keeps_first_shape = true}},
    {"aten::scatter_reduce.two", scatter_reduce, {.may_fail = true, .keeps_first_shape = true}},
    {"aten::take", take, {.may_fail = true}},
};

}  // namespace

std::span<const OpRow> index_rows() { return kRows; }

}  // namespace smelt
