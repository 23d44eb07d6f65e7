// Writes at computed places: an element for each index, one after the other, so that of several at
// one place the last one stays, and sums are those of eager's loops.
#include <algorithm>

#include "ops/meanings/families.h"
#include "ops/meanings/index_places.h"
#include "ops/meanings/update_rules.h"
#include "ops/rules/decompose.h"
#include "ops/rules/element.h"

namespace smelt {
namespace {

using loops::Reduction;
using Combine = std::optional<Reduction>;

// --- index_put(self, indices, values, accumulate) ---

UpdateForm index_put_form(const NodeReader& q) {
  return {.points = indexed_sizes(q),
          .base = 0,
          .combine = q.boolean(3, false) ? Combine(Reduction::sum) : std::nullopt};
}

UpdatedElement index_put(ElementQuery& q) {
  const Sizes sizes = indexed_sizes(q);
  const Indices from = broadcast_place(q.graph(), q.at(), sizes, q.type(2).sizes);
  return {indexed_place(q, sizes), q.load(q.value(2), from)};
}

// --- (self, dim, index, ..) with an index for each slice along the dimension ---

bool has_slices(const NodeReader& q) {
  return q.type(0).rank() > 0 && q.type(2).rank() == 1 && is_index(q.type(2)) &&
         all_certainly_positive(q.type(0).sizes);
}

Indices slice_place(ElementQuery& q, bool wrap) {
  const int dim = dim_of(q.integer(1), q.type(0).rank());
  Indices place = q.at();
  const Expr index = q.load(q.value(2), {q.at()[dim]});
  place[dim] = q.checked_index(index, q.type(0).sizes[dim], wrap);
  return place;
}

// Each element of that argument is put somewhere.
template <int argument, bool adds>
UpdateForm form_of(const NodeReader& q) {
  return {.points = q.type(argument).sizes,
          .base = 0,
          .combine = adds ? Combine(Reduction::sum) : std::nullopt};
}

// index_add(self, dim, index, source, alpha)
UpdatedElement index_add(ElementQuery& q) {
  q.set_compute_dtype(q.result().dtype);
  const Expr source = q.load(q.value(3), q.at());
  const bool scaled = q.number(4, 1) != 1;
  return {slice_place(q, false), scaled ? source * q.operand(4) : source};
}

// ATen's kernels for many rows carry sums of f16 and bf16 in single precision; one that rounds each
// sum is further from the result (add_in_single_precision).
bool rounds_sums(const NodeReader& q) { return loops::is_half(q.result().dtype); }

Decision allows_index_add(const NodeReader& q) {
  if (!has_slices(q)) return Decision::forbid("no index per slice");
  if (rounds_sums(q)) return Decision::forbid("each sum would be rounded");
  if (q.size() <= 4 || q.arg(4).is_none()) return Decision::allow();
  if (!q.arg(4).is_number()) return Decision::forbid("a number that is not known");
  if (q.arg(4).is<Size>() && !q.size_at(4).is_known())
    return Decision::forbid("a number that is not known");
  // Where it is 1 nothing is rounded twice.
  if (q.number(4) == 1) return Decision::allow();
  const DType dtype = q.result().dtype;
  if (dtype == DType::f32 || dtype == DType::f64) return Decision::allow();
  return Decision::forbid("a scaled sum in this dtype");
}

// index_copy(self, dim, index, source)
UpdatedElement index_copy(ElementQuery& q) {
  return {slice_place(q, false), q.load(q.value(3), q.at())};
}

Decision allows_slices(const NodeReader& q) {
  if (!has_slices(q)) return Decision::forbid("no index per slice");
  return Decision::allow();
}

// index_fill(self, dim, index, value)
UpdateForm index_fill_form(const NodeReader& q) {
  Sizes points = q.type(0).sizes;
  points[dim_of(q.integer(1), q.type(0).rank())] = q.type(2).sizes[0];
  return {.points = std::move(points), .base = 0, .combine = std::nullopt};
}

UpdatedElement index_fill(ElementQuery& q) {
  const Expr value = q.is_tensor(3) ? q.load(q.value(3), {}) : number_element(q, 3);
  return {slice_place(q, true), value};
}

Decision allows_index_fill(const NodeReader& q) {
  if (!has_slices(q)) return Decision::forbid("no index per slice");
  return q.is_tensor(3) ? Decision::allow() : allows_number(q, 3);
}

// --- scatter(self, dim, index, src or value): an index for each element ---

UpdatedElement scatter(ElementQuery& q) {
  const int dim = dim_of(q.integer(1), q.type(0).rank());
  Indices place = q.at();
  const Expr index = q.load(q.value(2), q.at());
  place[dim] = q.checked_index(index, q.type(0).sizes[dim], false);
  return {place, is_number_at(q, 3) ? number_element(q, 3) : q.load(q.value(3), q.at())};
}

Decision allows_scatter(const NodeReader& q) {
  if (q.type(0).rank() == 0 || q.type(2).rank() != q.type(0).rank())
    return Decision::forbid("a scalar");
  if (!is_index(q.type(2))) return Decision::forbid("not an index dtype");
  if (!all_certainly_positive(q.type(0).sizes)) return Decision::forbid("an index into nothing");
  return is_number_at(q, 3) ? allows_number(q, 3) : Decision::allow();
}

Decision allows_scatter_add(const NodeReader& q) {
  return rounds_sums(q) ? Decision::forbid("each sum would be rounded") : allows_scatter(q);
}

// scatter_reduce(self, dim, index, src, reduce, include_self), and index_reduce
Combine combine_of(std::string_view reduce) {
  if (reduce == "sum") return Reduction::sum;
  if (reduce == "prod") return Reduction::product;
  if (reduce == "amax") return Reduction::max;
  if (reduce == "amin") return Reduction::min;
  return std::nullopt;
}

UpdateForm scatter_reduce_form(const NodeReader& q) {
  return {.points = q.type(2).sizes, .base = 0, .combine = combine_of(q.text(4))};
}

UpdateForm index_reduce_form(const NodeReader& q) {
  return {.points = q.type(3).sizes, .base = 0, .combine = combine_of(q.text(4))};
}

Decision allows_combine(const NodeReader& q) {
  if (!combine_of(q.text(4))) return Decision::forbid("a mean of what meets");
  if (!q.boolean(5, true)) return Decision::forbid("what was there counts only if nothing comes");
  return Decision::allow();
}

Decision allows_scatter_reduce(const NodeReader& q) {
  const Decision made = allows_scatter_add(q);
  return made ? allows_combine(q) : made;
}

Decision allows_index_reduce(const NodeReader& q) {
  const Decision made = allows_slices(q);
  return made ? allows_combine(q) : made;
}

// Without what was there: that is overwritten by what changes nothing first.
bool scatter_reduce_alone(DecomposeQuery& q) {
  const Combine combine = combine_of(q.text(4));
  const TensorType& self = q.type(0);
  if (q.boolean(5, true) || !combine || self.dtype == DType::b8) return false;
  Arg neutral = 0;
  if (*combine == Reduction::product) neutral = 1;
  if (*combine == Reduction::max || *combine == Reduction::min) {
    if (!is_floating(self.dtype)) return false;
    const double infinity = std::numeric_limits<double>::infinity();
    neutral = *combine == Reduction::max ? -infinity : infinity;
  }
  const Ref cleared{q.call("aten::scatter.value", {q.arg(0), q.arg(1), q.arg(2), neutral})};
  q.replace(0, q.call("aten::scatter_reduce.two",
                      {cleared, q.arg(1), q.arg(2), q.arg(3), q.arg(4), true}));
  return true;
}

// --- put(self, index, source, accumulate): self as one row ---

UpdateForm put_form(const NodeReader& q) {
  return {.points = q.type(1).sizes,
          .base = 0,
          .combine = q.boolean(3, false) ? Combine(Reduction::sum) : std::nullopt};
}

UpdatedElement put(ElementQuery& q) {
  const Sizes& sizes = q.type(0).sizes;
  const Index flat = q.checked_index(q.load(q.value(1), q.at()), product(sizes), true);
  const Indices from = reshaped_place(q.at(), q.type(1).sizes, q.type(2).sizes, q.extents());
  return {loops::unravel(flat, sizes, q.extents()), q.load(q.value(2), from)};
}

Decision allows_put(const NodeReader& q) {
  if (!is_index(q.type(1))) return Decision::forbid("not an index dtype");
  if (!all_certainly_positive(q.type(0).sizes)) return Decision::forbid("an index into nothing");
  return Decision::allow();
}

// --- embedding_dense_backward(grad, indices, num_weights, padding_idx, scale_grad_by_freq) ---

UpdateForm embedding_form(const NodeReader& q) {
  return {.points = q.type(0).sizes, .base = std::nullopt, .combine = Reduction::sum};
}

UpdatedElement embedding_gradient(ElementQuery& q) {
  Indices where = q.at();
  where.pop_back();
  const Expr index = q.load(q.value(1), where).to(DType::i64);
  const Index row = q.checked_index(index, q.result().sizes[0], false);
  Expr element = q.load(q.value(0), q.at());
  if (q.integer(3) >= 0) {
    const Expr wide = element.to(accumulate_of(element.dtype()));
    element = select(index == static_cast<double>(q.integer(3)), 0.0, wide);
  }
  return {{row, q.at().back()}, element};
}

Decision allows_embedding(const NodeReader& q) {
  if (!is_index(q.type(1))) return Decision::forbid("not an index dtype");
  if (!q.arg(3).is<Size>() || !q.size_at(3).is_known())
    return Decision::forbid("a padding index that is not known");
  if (q.boolean(4)) return Decision::forbid("rows are scaled by how often they occur");
  return Decision::allow();
}

constexpr UpdateRule kIndexAdd{form_of<3, true>, index_add, allows_index_add};
constexpr UpdateRule kIndexCopy{form_of<3, false>, index_copy, allows_slices};
constexpr UpdateRule kIndexFill{index_fill_form, index_fill, allows_index_fill};
constexpr UpdateRule kIndexReduce{index_reduce_form, index_copy, allows_index_reduce};
constexpr UpdateRule kScatterReduce{scatter_reduce_form, scatter, allows_scatter_reduce};
constexpr UpdateRule kPut{put_form, put, allows_put};
constexpr UpdateRule kEmbedding{embedding_form, embedding_gradient, allows_embedding};

constexpr Meaning updates(std::string_view name, const UpdateRule& rule,
                          DecomposeRule decompose = nullptr) {
  return {.name = name, .update = &rule, .decompose = decompose};
}

constexpr Meaning kRows[] = {
    updates("aten::embedding_dense_backward", kEmbedding),
    updates("aten::index_add", kIndexAdd, add_in_single_precision),
    updates("aten::index_copy", kIndexCopy),
    updates("aten::index_fill.int_Scalar", kIndexFill),
    updates("aten::index_fill.int_Tensor", kIndexFill),
    updates("aten::index_reduce", kIndexReduce),
    updates("aten::put", kPut),
    updates("aten::scatter_reduce.two", kScatterReduce, scatter_reduce_alone),
};

}  // namespace

const UpdateRule kIndexPut{index_put_form, index_put, allows_indices};
const UpdateRule kScatterPut{form_of<2, false>, scatter, allows_scatter};
const UpdateRule kScatterAdd{form_of<2, true>, scatter, allows_scatter_add};

// The sums are twice as large, and pass through memory three times: there must be more to add than
// sums, and these not so many that their memory is touched for the first time in each call. Single
// elements along a row, not rows, are no faster than torch's.
constexpr int64_t kMostSums = int64_t{1} << 20;

bool add_in_single_precision(DecomposeQuery& q) {
  const TensorType self = q.type(0);
  if (!rounds_sums(q) || !is_wanted(q, 0) || self.rank() < 2 || q.is_lowered()) return false;
  const int64_t sums = q.graph().symbols.hint(self.numel());
  const int64_t added = q.graph().symbols.hint(q.type(3).numel());
  if (added < sums || sums > kMostSums) return false;
  if (q.type(3).dtype != self.dtype || dim_of(q.integer(1), self.rank()) == self.rank() - 1)
    return false;
  std::vector<Arg> args = q.node().args;
  args[0] = argument_as(q, 0, DType::f32).ref();
  args[3] = argument_as(q, 3, DType::f32).ref();
  give(q, 0, write(q, q.node().op.str(), std::move(args)));
  return true;
}

bool is_number_at(const NodeReader& q, size_t i) {
  return !q.is_tensor(i) || is_unknown_number(q, i);
}

Expr number_element(ElementQuery& q, size_t i) {
  q.set_compute_dtype(q.result().dtype);
  return q.operand(i);
}

Decision allows_number(const NodeReader& q, size_t i) {
  if (is_unknown_number(q, i))
    return is_floating(q.type(0).dtype) ? Decision::allow()
                                        : Decision::forbid("a number the dtype may not hold");
  const bool is_known = !q.arg(i).is<Size>() || q.size_at(i).is_known();
  const bool is_truth = q.arg(i).is<bool>() || (q.arg(i).is<Size>() && is_known &&
                                                (q.integer(i) == 0 || q.integer(i) == 1));
  if (is_truth || (is_floating(q.type(0).dtype) && is_known)) return Decision::allow();
  return Decision::forbid("a number the dtype may not hold");
}

std::span<const Meaning> update_meanings() { return kRows; }

}  // namespace smelt
