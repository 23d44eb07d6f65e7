// Copies that rearrange: concatenation, padding, repetition, triangles.
#include "ops/rules/geometry.h"
#include "ops/rules/iterate.h"
#include "ops/rules/layout.h"
#include "ops/rules/promotion.h"
#include "ops/shapes/families.h"

namespace smelt {
namespace {

// torch lets tensors of sizes [0] pass in any concatenation.
bool is_skipped(SymbolTable& s, const TensorType& type) {
  return type.rank() == 1 && equal(s, type.sizes[0], 0);
}

// The format all tensors suggest; contiguous unless they agree.
MemoryFormat joint_format(SymbolTable& s, std::span<const TensorType> tensors) {
  const MemoryFormat first = suggested_format(s, tensors[0]);
  for (const TensorType& tensor : tensors) {
    const MemoryFormat format = suggested_format(s, tensor);
    if (format == kContiguous || !(format == first)) return kContiguous;
  }
  return first;
}

Decision concatenate(const ShapeQuery& q, std::span<const TensorType> tensors, int64_t dim_arg,
                     MaybeType& result) {
  SymbolTable& s = q.symbols();
  if (tensors.empty()) return Decision::forbid("nothing to concatenate");
  const TensorType* first = nullptr;
  for (const TensorType& tensor : tensors) {
    if (tensor.rank() == 0) return Decision::forbid("a scalar in a concatenation");
    if (tensor.device != tensors[0].device)
      return Decision::forbid("the tensors are on different devices");
    if (!first && !is_skipped(s, tensor)) first = &tensor;
  }
  const std::optional<DType> dtype = result_type(tensors, q.default_float());
  if (!dtype || !takes(kAll, *dtype)) return Decision::forbid("no rule for these dtypes");
  if (!first) return Decision::forbid("only empty tensors");
  const std::optional<int> dim = wrap_dim(dim_arg, first->rank());
  if (!dim) return Decision::forbid("a bad dimension");
  Sizes sizes = first->sizes;
  sizes[*dim] = 0;
  for (const TensorType& tensor : tensors) {
    if (is_skipped(s, tensor)) continue;
    if (tensor.rank() != first->rank()) return Decision::forbid("the tensors differ in rank");
    for (int d = 0; d < tensor.rank(); ++d) {
      if (d == *dim) {
        sizes[d] = sizes[d] + tensor.sizes[d];
      } else if (!equal(s, tensor.sizes[d], sizes[d])) {
        return Decision::forbid("the tensors differ in size");
      }
    }
  }
  const std::optional<Sizes> strides = format_strides(sizes, joint_format(s, tensors));
  if (!strides) return Decision::forbid("the tensors differ in rank");
  result = fresh(*dtype, first->device, sizes, *strides);
  return Decision::allow();
}

Decision push_concatenated(ShapeQuery& q, std::span<const TensorType> tensors, int64_t dim) {
  MaybeType result;
  if (Decision made = concatenate(q, tensors, dim, result); !made) return made;
  q.push(std::move(*result));
  return Decision::allow();
}

Decision cat(ShapeQuery& q) { return push_concatenated(q, q.tensors(0), q.integer(1)); }

// A concatenation along the dimension behind, split by a view; along a new last dimension each is
// unsqueezed.
Decision stack(ShapeQuery& q) {
  SymbolTable& s = q.symbols();
  std::vector<TensorType> tensors = q.tensors(0);
  if (tensors.empty()) return Decision::forbid("nothing to stack");
  const Sizes each = tensors[0].sizes;
  const std::optional<int> dim = wrap_dim(q.integer(1), tensors[0].rank() + 1);
  if (!dim) return Decision::forbid("a bad dimension");
  for (const TensorType& tensor : tensors) {
    if (!equal(s, tensor.sizes, each)) return Decision::forbid("the tensors differ in size");
  }
  if (*dim == static_cast<int>(each.size())) {
    for (TensorType& tensor : tensors) tensor = *unsqueezed(tensor, *dim);
    return push_concatenated(q, tensors, *dim);
  }
  MaybeType joined;
  if (Decision made = concatenate(q, tensors, *dim, joined); !made) return made;
  Sizes sizes = each;
  sizes.insert(sizes.begin() + *dim, Size(static_cast<int64_t>(tensors.size())));
  joined = viewed(s, *joined, sizes);
  if (!joined) return Decision::forbid("the stack cannot be viewed");
  q.push(std::move(*joined));
  return Decision::allow();
}

Decision flip(ShapeQuery& q) {
  const TensorType self = q.tensor(0);
  std::vector<bool> seen(std::max(self.rank(), 1));
  for (int64_t item : q.integers(1)) {
    const std::optional<int> dim = wrap_dim(item, self.rank());
    if (!dim || seen[*dim]) return Decision::forbid("a bad dimension");
    seen[*dim] = true;
  }
  if (!takes(kAll, self.dtype)) return Decision::forbid("no rule for this dtype");
  q.push(preserved(q.symbols(), self));
  return Decision::allow();
}

// _chunk_cat(tensors, dim, num_chunks): each tensor as that many rows, the rows put together.
Decision chunk_cat(ShapeQuery& q) {
  SymbolTable& s = q.symbols();
  const std::vector<TensorType> tensors = q.tensors(0);
  const Size chunks = q.size_at(2);
  if (tensors.empty() || !less(s, 0, chunks)) return Decision::forbid("nothing to put together");
  const std::optional<int> dim = wrap_dim(q.integer(1), tensors[0].rank());
  if (!dim) return Decision::forbid("a bad dimension");
  const auto leading = std::span(tensors[0].sizes).first(*dim);
  Size length = 0;
  for (const TensorType& tensor : tensors) {
    const bool fits = tensor.rank() > *dim && tensor.dtype == tensors[0].dtype &&
                      tensor.device == tensors[0].device &&
                      (tensor.device.is_cpu() || is_contiguous(s, tensor)) &&
                      !is_empty(s, tensor.sizes) &&
                      equal(s, std::span(tensor.sizes).first(*dim), leading);
    if (!fits || !takes(kAll, tensor.dtype)) return Decision::forbid("no rule for these tensors");
    const Size rows = floor_div(tensor.sizes[*dim] + chunks - 1, chunks);
    length = length + rows * product(std::span(tensor.sizes).subspan(*dim + 1));
  }
  Sizes sizes(leading.begin(), leading.end());
  sizes.push_back(chunks);
  sizes.push_back(length);
  q.push(fresh_like(tensors[0], std::move(sizes)));
  return Decision::allow();
}

// roll(self, shifts, dims): each dimension is cut in two and put together again.
Decision roll(ShapeQuery& q) {
  SymbolTable& s = q.symbols();
  TensorType self = q.tensor(0);
  const Sizes shifts = q.sizes(1);
  const std::vector<int64_t> dims = q.integers(2);
  if (!takes(kAll, self.dtype)) return Decision::forbid("no rule for this input");
  if (!self.device.is_cpu() && !is_contiguous(s, self))
    return Decision::forbid("not modelled on this device");
  if (dims.empty() && shifts.size() == 1) {
    q.push(fresh_like(self, self.sizes));
    return Decision::allow();
  }
  if (dims.empty() || dims.size() != shifts.size())
    return Decision::forbid("shifts and dimensions do not fit");
  for (size_t i = 0; i < dims.size(); ++i) {
    const std::optional<int> dim = wrap_dim(dims[i], self.rank());
    if (!dim || self.rank() == 0) return Decision::forbid("a bad dimension");
    if (is_empty(s, self.sizes)) {
      self = preserved(s, self);
      continue;
    }
    const Size& size = self.sizes[*dim];
    const Size start = modulo(size - shifts[i], size);
    const TensorType parts[] = {*sliced(s, self, *dim, start, size, 1),
                                *sliced(s, self, *dim, 0, start, 1)};
    MaybeType joined;
    if (Decision made = concatenate(q, parts, *dim, joined); !made) return made;
    self = *joined;
    self.sizes = q.tensor(0).sizes;
  }
  q.push(std::move(self));
  return Decision::allow();
}

Decision repeat(ShapeQuery& q) {
  SymbolTable& s = q.symbols();
  const TensorType self = q.tensor(0);
  Sizes sizes = q.sizes(1);
  if (static_cast<int>(sizes.size()) < self.rank()) return Decision::forbid("too few repetitions");
  const size_t lead = sizes.size() - self.sizes.size();
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (less(s, sizes[i], 0)) return Decision::forbid("a negative repetition");
    if (i >= lead) sizes[i] = sizes[i] * self.sizes[i - lead];
  }
  q.push(fresh_like(self, std::move(sizes)));
  return Decision::allow();
}

Decision triangle(ShapeQuery& q) {
  const TensorType self = q.tensor(0);
  if (self.rank() < 2 || !takes(kAll, self.dtype))
    return Decision::forbid("no rule for this input");
  q.push(fresh_like(self, self.sizes));
  return Decision::allow();
}

// diag_embed(self, offset, dim1, dim2)
Decision diag_embed(ShapeQuery& q) {
  const TensorType self = q.tensor(0);
  const std::optional<int> a = wrap_dim(q.integer(2), self.rank() + 1),
                           b = wrap_dim(q.integer(3), self.rank() + 1);
  if (self.rank() == 0 || !a || !b || *a == *b) return Decision::forbid("bad dimensions");
  Sizes sizes = self.sizes;
  const Size length = sizes.back() + std::abs(q.integer(1));
  sizes.pop_back();
  sizes.insert(sizes.begin() + std::min(*a, *b), length);
  sizes.insert(sizes.begin() + std::max(*a, *b), length);
  q.push(fresh_like(self, std::move(sizes)));
  return Decision::allow();
}

// constant_pad_nd(self, pad, value): pairs from the last dimension on; negative ones cut.
Decision constant_pad(ShapeQuery& q) {
  SymbolTable& s = q.symbols();
  const TensorType self = q.tensor(0);
  const Sizes pad = q.sizes(1);
  const int pairs = static_cast<int>(pad.size()) / 2;
  if (pad.size() % 2 != 0 || pairs > self.rank()) return Decision::forbid("a bad padding");
  if (q.arg(2).is<std::complex<double>>() && !is_complex(self.dtype))
    return Decision::forbid("a complex value");
  TensorType cut = self;
  Sizes sizes = self.sizes;
  bool grows = false;
  for (int i = 0; i < pairs; ++i) {
    const int d = self.rank() - 1 - i;
    for (const Size& amount : {pad[2 * i], pad[2 * i + 1]}) {
      grows = grows || less(s, 0, amount);
      sizes[d] = sizes[d] + amount;
      if (less(s, amount, 0)) cut.sizes[d] = cut.sizes[d] + amount;
    }
    if (less(s, sizes[d], 0) || less(s, cut.sizes[d], 0))
      return Decision::forbid("more is cut off than there is");
  }
  if (!grows) {
    q.push(preserved(s, cut));
    return Decision::allow();
  }
  q.push(fresh(self.dtype, self.device, sizes, *format_strides(sizes, suggested_format(s, self))));
  return Decision::allow();
}

// The output's sizes of a reflection or replication pad; nothing where it does not fit.
std::optional<Sizes> padded_sizes(const ShapeQuery& q, const TensorType& input, size_t pad_arg,
                                  int spatial, bool reflects) {
  SymbolTable& s = q.symbols();
  const Sizes pad = q.sizes(pad_arg);
  const bool rank_fits = input.rank() == spatial + 1 || input.rank() == spatial + 2;
  if (!rank_fits || static_cast<int>(pad.size()) != 2 * spatial ||
      !takes(kNumbers | kComplexes, input.dtype))
    return std::nullopt;
  if (is_empty(s, input.sizes)) return std::nullopt;
  Sizes sizes = input.sizes;
  for (int i = 0; i < spatial; ++i) {
    Size& size = sizes[input.rank() - 1 - i];
    for (const Size& amount : {pad[2 * i], pad[2 * i + 1]}) {
      if (reflects && !less(s, amount, input.sizes[input.rank() - 1 - i])) return std::nullopt;
      size = size + amount;
    }
    if (less(s, size, 1)) return std::nullopt;
  }
  return sizes;
}

// The CPU keeps channels-last, CUDA has no kernels for it.
Decision push_padded(ShapeQuery& q, const TensorType& input, const Sizes& sizes, int spatial) {
  const MemoryFormat format = spatial == 1 ? kContiguous : suggested_format(q.symbols(), input);
  if (!(format == kContiguous) && !input.device.is_cpu())
    return Decision::forbid("not modelled on this device");
  const std::optional<Sizes> strides = format_strides(sizes, format);
  if (!strides) return Decision::forbid("no rule for this layout");
  q.push(fresh(input.dtype, input.device, sizes, *strides));
  return Decision::allow();
}

template <int spatial, bool reflects>
Decision mirror_pad(ShapeQuery& q) {
  const TensorType input = q.tensor(0);
  const std::optional<Sizes> sizes = padded_sizes(q, input, 1, spatial, reflects);
  if (!sizes) return Decision::forbid("the padding does not fit");
  return push_padded(q, input, *sizes, spatial);
}

// (grad_output, self, padding)
template <int spatial, bool reflects>
Decision mirror_pad_backward(ShapeQuery& q) {
  const TensorType grad = q.tensor(0), input = q.tensor(1);
  const std::optional<Sizes> sizes = padded_sizes(q, input, 2, spatial, reflects);
  if (!sizes || grad.dtype != input.dtype || !equal(q.symbols(), grad.sizes, *sizes)) {
    return Decision::forbid("the gradient does not fit");
  }
  return push_padded(q, input, input.sizes, spatial);
}

// pixel_shuffle(self, factor): channels become pixels; pixel_unshuffle the other way.
template <bool unshuffle>
Decision pixel_shuffle(ShapeQuery& q) {
  SymbolTable& s = q.symbols();
  const TensorType self = q.tensor(0);
  const Size factor = q.size_at(1);
  const int rank = self.rank();
  if (rank < 3 || !less(s, 0, factor) || is_empty(s, self.sizes))
    return Decision::forbid("no rule for this input");
  if (!self.device.is_cpu()) return Decision::forbid("other devices decompose this op");
  const MemoryFormat format = suggested_format(s, self);
  if (format == kChannelsLast3d) return Decision::forbid("no kernel for this layout");
  Sizes sizes = self.sizes;
  const Size area = factor * factor;
  const auto divides = [&](const Size& size, const Size& by) {
    return equal(s, modulo(size, by), 0);
  };
  if (unshuffle) {
    if (!divides(sizes[rank - 1], factor) || !divides(sizes[rank - 2], factor))
      return Decision::forbid("no such factor");
    sizes[rank - 3] = sizes[rank - 3] * area;
    for (int d : {rank - 2, rank - 1}) sizes[d] = floor_div(sizes[d], factor);
  } else {
    if (!divides(sizes[rank - 3], area)) return Decision::forbid("no such factor");
    sizes[rank - 3] = floor_div(sizes[rank - 3], area);
    for (int d : {rank - 2, rank - 1}) sizes[d] = sizes[d] * factor;
  }
  q.push(fresh(self.dtype, self.device, sizes, *format_strides(sizes, format)));
  return Decision::allow();
}

constexpr OpRow kRows[] = {
    {"aten::_chunk_cat", chunk_cat},
    {"aten::cat", cat},
    {"aten::constant_pad_nd", constant_pad},
    {"aten::diag_embed", diag_embed},
    {"aten::flip", flip},
    {"aten::pixel_shuffle", pixel_shuffle<false>},
    {"aten::pixel_unshuffle", pixel_shuffle<true>},
    {"aten::reflection_pad1d", mirror_pad<1, true>},
    {"aten::reflection_pad1d_backward", mirror_pad_backward<1, true>},
    {"aten::reflection_pad2d", mirror_pad<2, true>},
    {"aten::reflection_pad2d_backward", mirror_pad_backward<2, true>},
    {"aten::reflection_pad3d", mirror_pad<3, true>},
    {"aten::reflection_pad3d_backward", mirror_pad_backward<3, true>},
    {"aten::repeat", repeat},
    {"aten::replication_pad1d", mirror_pad<1, false>},
    {"aten::replication_pad1d_backward", mirror_pad_backward<1, false>},
    {"aten::replication_pad2d", mirror_pad<2, false>},
    {"aten::replication_pad2d_backward", mirror_pad_backward<2, false>},
    {"aten::replication_pad3d", mirror_pad<3, false>},
    {"aten::replication_pad3d_backward", mirror_pad_backward<3, false>},
    {"aten::roll", roll},
    {"aten::stack", stack},
    {"aten::tril", triangle},
    {"aten::triu", triangle},
};

}  // namespace

std::span<const OpRow> arrange_rows() { return kRows; }

}  // namespace smelt
