#include "capture/dispatch/recording_tensor.h"

#include <ATen/FunctionalTensorWrapper.h>

#include <utility>

#include "aten/convert.h"
#include "aten/keys.h"

namespace smelt {
namespace {

c10::DispatchKeySet keys_for(const TensorType& type) {
  const c10::DispatchKey backend =
      type.device.is_cuda() ? c10::DispatchKey::CUDA : c10::DispatchKey::CPU;
  c10::DispatchKeySet keys({backend, kRecordKey, kTopKey});
  if (type.conj) keys = keys.add(c10::DispatchKey::Conjugate);
  if (type.neg) keys = keys.add(c10::DispatchKey::Negative);
  return keys;
}

}  // namespace

RecordingTensor::RecordingTensor(const TensorType& type, uint64_t recording, ValueId value,
                                 const SymbolsPtr& symbols)
    : TensorImpl(keys_for(type), c10::scalarTypeToTypeMeta(to_scalar_type(type.dtype)),
                 to_c10(type.device)),
      type_(type),
      recording_(recording),
      value_(value),
      symbols_(symbols) {
  if (all_known(type.sizes) && all_known(type.strides) && type.offset.is_known()) {
    c10::SmallVector<int64_t, 6> sizes, strides;
    for (const Size& size : type.sizes) sizes.push_back(size.known());
    for (const Size& stride : type.strides) strides.push_back(stride.known());
    set_sizes_and_strides(sizes, strides, type.offset.known());
  } else {
    set_sizes_and_strides(to_sym_ints(type.sizes, symbols), to_sym_ints(type.strides, symbols),
                          to_sym_int(type.offset, symbols));
  }
  set_storage_access_should_throw();
  if (type.wrapped_number) set_wrapped_number(true);
}

c10::IntArrayRef RecordingTensor::pin(const Sizes& sizes, std::vector<int64_t>& pinned) const {
  if (pinned.empty())
    for (const Size& size : sizes) pinned.push_back(symbols_->specialise(size));
  return pinned;
}

namespace {

thread_local bool asked_if_empty = false;

}  // namespace

AskedIfEmpty::AskedIfEmpty(bool asks) : before_(std::exchange(asked_if_empty, asks)) {}
AskedIfEmpty::~AskedIfEmpty() { asked_if_empty = before_; }

int64_t RecordingTensor::numel_custom() const {
  const Size numel = type_.numel();
  if (!asked_if_empty) return symbols_->specialise(numel);
  symbols_->holds(numel, Relation::ne, 0);
  return symbols_->hint(numel);
}

template <class Version>
c10::intrusive_ptr<c10::TensorImpl> RecordingTensor::copy(Version&& version,
                                                          bool allow_metadata_change) const {
  auto impl = c10::make_intrusive<RecordingTensor>(type_, recording_, value_, symbols_);
  impl->set_version_counter(std::forward<Version>(version));
  impl->set_allow_tensor_metadata_change(allow_metadata_change);
  return impl;
}

c10::intrusive_ptr<c10::TensorImpl> RecordingTensor::shallow_copy_and_detach(
    const c10::VariableVersion& version, bool allow_metadata_change) const {
  return copy(version, allow_metadata_change);
}

c10::intrusive_ptr<c10::TensorImpl> RecordingTensor::shallow_copy_and_detach(
    c10::VariableVersion&& version, bool allow_metadata_change) const {
  return copy(std::move(version), allow_metadata_change);
}

RecordingTensor* as_recording(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.key_set().has(kRecordKey)) return nullptr;
  return dynamic_cast<RecordingTensor*>(tensor.unsafeGetTensorImpl());
}

RecordingTensor* recording_inside(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.key_set().has(kRecordKey)) return nullptr;
  if (tensor.key_set().has(c10::DispatchKey::Functionalize))
    return as_recording(at::functionalization::impl::unsafeGetFunctionalWrapper(tensor)->value());
  return as_recording(tensor);
}

}  // namespace smelt
