#include "capture/dispatch/restride.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/as_strided_scatter.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace smelt {
namespace {

using at::functionalization::FunctionalStorageImpl;

FunctionalStorageImpl* storage_of(const at::Tensor& tensor) {
  return static_cast<FunctionalStorageImpl*>(
      tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
}

// What must be off so that calls with record-level tensors are written down as they are.
c10::DispatchKeySet above_record() {
  return c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset |
         c10::DispatchKeySet(c10::DispatchKey::Functionalize);
}

// Strides say something only where there is more than one element.
bool lie_alike(c10::SymIntArrayRef sizes, c10::SymIntArrayRef a, c10::SymIntArrayRef b) {
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 0) return true;
    if (sizes[d] != 1 && a[d] != b[d]) return false;
  }
  return true;
}

at::Tensor copy_in_strides(const at::Tensor& value, c10::SymIntArrayRef sizes,
                           c10::SymIntArrayRef strides) {
  if (lie_alike(sizes, value.sym_strides(), strides))
    return at::as_strided_symint(value, sizes, strides);
  c10::SymInt last = 0;
  for (size_t d = 0; d < sizes.size(); ++d) last += (sizes[d] - 1) * strides[d];
  const at::Tensor memory = value.new_empty_symint({last + 1});
  return at::as_strided_symint(at::as_strided_scatter_symint(memory, value, sizes, strides), sizes,
                               strides);
}

}  // namespace

StridesBefore::StridesBefore(const at::Tensor& target)
    : target_(target), storage_(storage_of(target)) {
  c10::impl::ExcludeDispatchKeyGuard below(above_record());
  at::functionalization::impl::sync(target);
  const at::Tensor& whole = storage_of(target)->base();
  sizes_ = c10::SymDimVector(whole.sym_sizes());
  strides_ = c10::SymDimVector(whole.sym_strides());
}

void StridesBefore::restore() const {
  FunctionalStorageImpl* storage = storage_of(target_);
  if (storage != storage_) return;
  c10::impl::ExcludeDispatchKeyGuard below(above_record());
  at::functionalization::impl::sync(target_);
  const at::Tensor& whole = storage->base();
  if (whole.sym_sizes() != c10::SymIntArrayRef(sizes_) ||
      whole.sym_strides() == c10::SymIntArrayRef(strides_))
    return;
  storage->add_update(copy_in_strides(whole, sizes_, strides_), {});
  at::functionalization::impl::sync(target_);
}

}  // namespace smelt
