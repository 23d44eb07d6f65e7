#include "aten/overlap.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/bounds.h"

namespace smelt {
namespace {

using Range = std::pair<int64_t, int64_t>;

Range bytes_spanned(const at::Tensor& tensor) {
  int64_t last = 0;
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    if (tensor.size(d) == 0) return {0, 0};
    last += (tensor.size(d) - 1) * tensor.stride(d);
  }
  const int64_t begin = tensor.storage_offset(), size = static_cast<int64_t>(tensor.element_size());
  return {begin * size, (begin + last + 1) * size};
}

// One way to move through the memory: `stride` taken any number of times from `low` to `high`.
struct Step {
  int64_t stride, low, high;
};

// Is `distance` a sum of steps? Strides stand in falling order, so few counts of each fit.
bool reaches(const std::vector<Step>& steps, size_t next, int64_t distance, int& budget) {
  if (next == steps.size()) return distance == 0;
  int64_t low = 0, high = 0;  // what the steps after this one reach
  for (size_t i = next + 1; i < steps.size(); ++i) {
    low += steps[i].stride * steps[i].low;
    high += steps[i].stride * steps[i].high;
  }
  const auto [stride, first, last] = steps[next];
  for (int64_t count = first; count <= last; ++count) {
    const int64_t rest = distance - stride * count;
    if (rest < low || rest > high) continue;
    if (--budget < 0 || reaches(steps, next + 1, rest, budget)) return true;
  }
  return false;
}

bool share_at_hints(const TensorType& a, const TensorType& b, const SymbolTable& symbols) {
  std::vector<Step> steps;
  const auto add = [&](const TensorType& type, bool forward) {
    for (int d = 0; d < type.rank(); ++d) {
      const int64_t stride = symbols.hint(type.strides[d]), most = symbols.hint(type.sizes[d]) - 1;
      if (stride == 0 || most == 0) continue;
      auto it = std::find_if(steps.begin(), steps.end(),
                             [&](const Step& step) { return step.stride == stride; });
      if (it == steps.end()) it = steps.insert(it, Step{stride, 0, 0});
      (forward ? it->high : it->low) += forward ? most : -most;
    }
  };
  add(a, true);
  add(b, false);
  std::sort(steps.begin(), steps.end(),
            [](const Step& x, const Step& y) { return x.stride > y.stride; });
  int budget = 1000;
  return reaches(steps, 0, symbols.hint(b.offset) - symbols.hint(a.offset), budget);
}

// What is the case at the hints, and a guard then where it is not always.
bool relies_on(const Size& left, Relation relation, const Size& right, SymbolTable& symbols) {
  return compare(symbols.hint(left), relation, symbols.hint(right)) &&
         symbols.holds(left, relation, right);
}

// How far the elements reach behind the first, over the dimensions whose strides are below `stride`
// at the hints. Nothing if a stride of the others is not certainly a multiple of it.
std::optional<Size> reach_below(const TensorType& type, const Size& stride,
                                const SymbolTable& symbols) {
  Size reach = 0;
  for (int d = 0; d < type.rank(); ++d) {
    const Size& own = type.strides[d];
    if (own.is(0) || type.sizes[d].is(1)) continue;
    if (symbols.hint(own) < symbols.hint(stride))
      reach = reach + own * (type.sizes[d] - 1);
    else if (!(floor_div(own, stride) * stride == own))
      return std::nullopt;
  }
  return reach;
}

// Two views that are known to share nothing at the hints: is there a reason for it that can be
// relied on? One lies behind the other, or they are columns of a matrix, whose rows are `stride`
// apart: the same ones of each row.
bool lie_apart(const TensorType& a, const TensorType& b, SymbolTable& symbols) {
  const Size distance = b.offset - a.offset;
  std::vector<Size> strides{Size(Bounds::kHighest)};
  for (const TensorType* type : {&a, &b})
    strides.insert(strides.end(), type->strides.begin(), type->strides.end());
  for (const Size& stride : strides) {
    const bool is_whole = stride.is(Bounds::kHighest);
    if (stride.is(0)) continue;
    const std::optional<Size> first = reach_below(a, stride, symbols);
    const std::optional<Size> second = reach_below(b, stride, symbols);
    if (!first || !second) continue;
    if (is_whole) {
      if (relies_on(distance, Relation::gt, *first, symbols) ||
          relies_on(distance + *second, Relation::lt, 0, symbols))
        return true;
      continue;
    }
    for (const int rows : {0, 1, -1}) {
      const Size apart = distance + stride * rows;
      if (symbols.hint(apart) <= symbols.hint(*first) ||
          symbols.hint(apart + *second) >= symbols.hint(stride))
        continue;
      return symbols.holds(apart, Relation::gt, *first) &&
             symbols.holds(apart + *second, Relation::lt, stride);
    }
  }
  return false;
}

void fix(const TensorType& type, SymbolTable& symbols) {
  for (const Sizes* sizes : {&type.sizes, &type.strides})
    for (const Size& size : *sizes) symbols.specialise(size);
  symbols.specialise(type.offset);
}

bool is_known(const TensorType& type) {
  return all_known(type.sizes) && all_known(type.strides) && type.offset.is_known();
}

}  // namespace

bool share_elements(const TensorType& a, const TensorType& b, SymbolTable& symbols) {
  for (const TensorType* type : {&a, &b})
    if (symbols.hint(type->numel()) == 0) {
      symbols.specialise(type->numel());
      return false;
    }
  if (a.dtype != b.dtype || share_at_hints(a, b, symbols)) return true;
  if ((is_known(a) && is_known(b)) || lie_apart(a, b, symbols)) return false;
  fix(a, symbols);
  fix(b, symbols);
  return false;
}

bool overlaps_itself(const TensorType& type, SymbolTable& symbols) {
  if (symbols.hint(type.numel()) == 0) {
    symbols.specialise(type.numel());
    return false;
  }
  std::vector<std::pair<Size, Size>> dims;  // stride, size
  for (int d = 0; d < type.rank(); ++d)
    if (symbols.holds(type.sizes[d], Relation::gt, 1))
      dims.emplace_back(type.strides[d], type.sizes[d]);
  std::ranges::stable_sort(dims, {}, [&](const auto& dim) { return symbols.hint(dim.first); });
  Size reach = 0;  // of the dimensions so far
  for (const auto& [stride, size] : dims) {
    if (!symbols.holds(stride, Relation::gt, reach)) return true;
    reach = reach + stride * (size - 1);
  }
  return false;
}

bool share_bytes(const at::Tensor& a, const at::Tensor& b) {
  if (!a.has_storage() || !b.has_storage()) return false;
  if (a.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl() !=
      b.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl())
    return false;
  const Range first = bytes_spanned(a), second = bytes_spanned(b);
  return first.first < second.second && second.first < first.second;
}

}  // namespace smelt
