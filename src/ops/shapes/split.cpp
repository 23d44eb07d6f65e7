// Views that come as a list.
#include "ops/rules/geometry.h"
#include "ops/rules/layout.h"
#include "ops/shapes/families.h"

namespace smelt {
namespace {

Decision push_pieces(ShapeQuery& q, const TensorType& self, int dim, const Sizes& lengths) {
  Size start = 0;
  for (const Size& length : lengths) {
    if (less(q.symbols(), length, 0)) return Decision::forbid("a length is negative");
    TensorType piece = self;
    piece.sizes[dim] = length;
    piece.offset = self.offset + start * self.strides[dim];
    start = start + length;
    q.push(std::move(piece));
  }
  if (!equal(q.symbols(), start, self.sizes[dim]))
    return Decision::forbid("the lengths do not add up");
  return Decision::allow();
}

// split(self, split_size, dim): pieces of one size, the last may be smaller. How many is part of
// the program.
Decision split(ShapeQuery& q) {
  SymbolTable& s = q.symbols();
  const TensorType self = q.tensor(0);
  const std::optional<int> dim = wrap_dim(q.integer(2), self.rank());
  const Size length = q.size_at(1);
  if (self.rank() == 0 || !dim || less(s, length, 0))
    return Decision::forbid("a bad dimension or size");
  const Size size = self.sizes[*dim];
  if (equal(s, length, 0)) {
    if (!equal(s, size, 0)) return Decision::forbid("pieces of size 0");
    return push_pieces(q, self, *dim, {0});
  }
  const Size pieces = floor_div(size + length - 1, length);
  const int64_t count =
      std::max<int64_t>(pieces.is_known() ? pieces.known() : s.specialise(pieces), 1);
  Sizes lengths(count, length);
  lengths.back() = size - length * (count - 1);
  return push_pieces(q, self, *dim, lengths);
}

Decision split_with_sizes(ShapeQuery& q) {
  const TensorType self = q.tensor(0);
  const std::optional<int> dim = wrap_dim(q.integer(2), self.rank());
  if (self.rank() == 0 || !dim) return Decision::forbid("a bad dimension");
  return push_pieces(q, self, *dim, q.sizes(1));
}

Decision unbind(ShapeQuery& q) {
  const TensorType self = q.tensor(0);
  const std::optional<int> dim = wrap_dim(q.integer(1), self.rank());
  if (self.rank() == 0 || !dim) return Decision::forbid("a bad dimension");
  const Size& size = self.sizes[*dim];
  const int64_t count = size.is_known() ? size.known() : q.symbols().specialise(size);
  for (int64_t i = 0; i < count; ++i) q.push(*selected(q.symbols(), self, *dim, i));
  return Decision::allow();
}

template <ShapeRule rule>
Decision copied(ShapeQuery& q) {
  if (Decision made = rule(q); !made) return made;
  for (auto& result : q.results) result = fresh_like(*result, result->sizes);
  return Decision::allow();
}

constexpr OpRow kRows[] = {
    {"aten::split.Tensor", split},
    {"aten::split_copy.Tensor", copied<split>},
    {"aten::split_with_sizes", split_with_sizes},
    {"aten::split_with_sizes_copy", copied<split_with_sizes>},
    {"aten::unbind.int", unbind},
    {"aten::unbind_copy.int", copied<unbind>},
    {"aten::unsafe_split.Tensor", split},
    {"aten::unsafe_split_with_sizes", split_with_sizes},
};

}  // namespace

std::span<const OpRow> split_rows() { return kRows; }

}  // namespace smelt
