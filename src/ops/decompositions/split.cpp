// Views that come as a list, as one view for each piece that is read: so each piece can be part of
// a kernel.
#include "ops/decompositions/families.h"
#include "ops/rules/decompose.h"
#include "ops/rules/layout.h"

namespace smelt {
namespace {

std::optional<int> dim_at(const DecomposeQuery& q, size_t i) {
  if (!q.size_at(i).is_known()) return std::nullopt;
  return wrap_dim(q.integer(i), q.type(0).rank());
}

// split.Tensor(self, size, dim), split_with_sizes(self, sizes, dim): the pieces are as long as
// `lengths` says, or each `lengths[0]` with a rest.
bool split_into(DecomposeQuery& q, const Sizes& lengths) {
  const std::optional<int> dim = dim_at(q, 2);
  if (!dim || lengths.empty()) return false;
  const Size whole = q.type(0).sizes[*dim];
  const Term x = argument(q, 0);
  Size start = 0;
  for (size_t i = 0; i < q.node().results.size(); ++i) {
    const bool last = i + 1 == q.node().results.size();
    const Size end = last ? whole : start + (i < lengths.size() ? lengths[i] : lengths.back());
    if (is_wanted(q, i)) q.replace(i, slice(x, *dim, start, end).value);
    start = end;
  }
  return true;
}

bool split(DecomposeQuery& q) { return split_into(q, {q.size_at(1)}); }
bool split_with_sizes(DecomposeQuery& q) { return split_into(q, q.sizes(1)); }

// unbind.int(self, dim)
bool unbind(DecomposeQuery& q) {
  const std::optional<int> dim = dim_at(q, 1);
  if (!dim) return false;
  const Term x = argument(q, 0);
  for (size_t i = 0; i < q.node().results.size(); ++i) {
    if (is_wanted(q, i)) q.replace(i, write(q, "aten::select.int", {x.ref(), *dim, i}).value);
  }
  return true;
}

const Meaning kMeanings[] = {
    {.name = "aten::split.Tensor", .decompose = split},
    {.name = "aten::split_with_sizes", .decompose = split_with_sizes},
    {.name = "aten::unbind.int", .decompose = unbind},
    {.name = "aten::unsafe_split.Tensor", .decompose = split},
    {.name = "aten::unsafe_split_with_sizes", .decompose = split_with_sizes},
};

}  // namespace

std::span<const Meaning> split_decompositions() { return kMeanings; }

}  // namespace smelt
