// The tensor that stands for a value while a program is written down: sizes, strides, dtype and
// device of the real one, no memory. It carries two dispatch keys of the recorder (keys.h) beside
// its device's own, so autocast, autograd and functionalization treat it as they would the real
// tensor.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>

#include "aten/size_node.h"
#include "base/type.h"
#include "graph/graph.h"

namespace smelt {

class RecordingTensor final : public c10::TensorImpl {
 public:
  // `recording` tells the recordings of a process apart.
  RecordingTensor(const TensorType& type, uint64_t recording, ValueId value,
                  const SymbolsPtr& symbols);

  uint64_t recording() const { return recording_; }
  ValueId value() const { return value_; }

  c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(const c10::VariableVersion& version,
                                                         bool allow_metadata_change) const override;
  c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(c10::VariableVersion&& version,
                                                         bool allow_metadata_change) const override;

  // Code of PyTorch that knows integers only gets the sizes at hand, and guards pin them.
  c10::IntArrayRef sizes_custom() const override { return pin(type_.sizes, pinned_sizes_); }
  c10::IntArrayRef strides_custom() const override { return pin(type_.strides, pinned_strides_); }
  int64_t numel_custom() const override;
  int64_t storage_offset_custom() const override { return symbols_->specialise(type_.offset); }

 private:
  const char* tensorimpl_type_name() const override { return "smelt::RecordingTensor"; }
  c10::IntArrayRef pin(const Sizes& sizes, std::vector<int64_t>& pinned) const;
  template <class Version>
  c10::intrusive_ptr<TensorImpl> copy(Version&& version, bool allow_metadata_change) const;

  TensorType type_;
  uint64_t recording_;
  ValueId value_;
  SymbolsPtr symbols_;
  mutable std::vector<int64_t> pinned_sizes_, pinned_strides_;
};

// While one lives on this thread, or not (`asks` is false), C++ code that asks for the number of
// elements asks only whether it is 0.
class AskedIfEmpty {
 public:
  explicit AskedIfEmpty(bool asks);
  ~AskedIfEmpty();
  AskedIfEmpty(const AskedIfEmpty&) = delete;
  AskedIfEmpty& operator=(const AskedIfEmpty&) = delete;

 private:
  const bool before_;
};

// The recording tensor itself, or nullptr. A functional wrapper is not looked through.
RecordingTensor* as_recording(const at::Tensor& tensor);
// The recording tensor a functional wrapper holds, or the tensor itself if it is one; else nullptr.
RecordingTensor* recording_inside(const at::Tensor& tensor);

}  // namespace smelt
