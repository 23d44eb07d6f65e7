#include "capture/dispatch/overlap.h"

#include <utility>

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

}  // namespace

bool share_bytes(const at::Tensor& a, const at::Tensor& b) {
  if (!a.has_storage() || !b.has_storage()) return false;
  if (a.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl() !=
      b.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl())
    return false;
  const Range first = bytes_spanned(a), second = bytes_spanned(b);
  return first.first < second.second && second.first < first.second;
}

}  // namespace smelt
