#include "aten/overlap.h"

#include <algorithm>
#include <utility>
#include <vector>

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

}  // namespace

bool share_elements(const TensorType& a, const TensorType& b, const SymbolTable& symbols) {
  if (symbols.hint(a.numel()) == 0 || symbols.hint(b.numel()) == 0) return false;
  if (a.dtype != b.dtype) return true;
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

bool overlaps_itself(const TensorType& type, const SymbolTable& symbols) {
  if (symbols.hint(type.numel()) == 0) return false;
  std::vector<std::pair<int64_t, int64_t>> dims;  // stride, size
  for (int d = 0; d < type.rank(); ++d)
    if (const int64_t size = symbols.hint(type.sizes[d]); size > 1)
      dims.emplace_back(symbols.hint(type.strides[d]), size);
  std::sort(dims.begin(), dims.end());
  int64_t reach = 0;  // of the dimensions so far
  for (const auto& [stride, size] : dims) {
    if (stride <= reach) return true;
    reach += stride * (size - 1);
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
