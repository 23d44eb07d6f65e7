// What a program computes once from tensors that stay as they are, and again when they don't:
// folded and packed weights.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/UndefinedTensorImpl.h>

#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "bridge/machine/linked_program.h"

namespace smelt {

// May PyTorch's own ops change this tensor without counting it? Batch norms write their running
// statistics so, whatever code calls them; statistics are vectors, if seen through a view perhaps.
bool may_change_silently(const at::Tensor& tensor);
// Can such a change be seen at the price of a look? Contents of another device can't.
bool can_watch(const at::Tensor& tensor);

class Preparation {
 public:
  Preparation(Program program, std::vector<c10::IValue> opaque);

  // For the main program's inputs as they are now. Computed if one that matters is another tensor
  // than last time, or has changed: in place (its version), by getting other memory, or silently
  // (may_change_silently). Thread-safe.
  std::shared_ptr<const std::vector<at::Tensor>> results(std::span<const at::Tensor> inputs) const;

 private:
  // A tensor as it was. The weak pointers keep the addresses from being used again.
  struct Seen {
    explicit Seen(const at::Tensor& tensor);
    bool is(const at::Tensor& tensor) const;
    bool has_contents(const at::Tensor& tensor) const;

    c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> tensor;
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    const c10::TensorImpl* address;
    const c10::StorageImpl* storage_address;
    const void* data;
    uint32_t version;
    at::Tensor contents;  // a copy, of one that may change silently
  };
  struct Done {
    std::vector<Seen> seen;  // one per input of the preparation
    std::vector<at::Tensor> results;
  };
  bool holds(const Done& done, std::span<const at::Tensor> inputs) const;
  std::shared_ptr<const Done> prepare(std::span<const at::Tensor> inputs) const;

  LinkedProgram program_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const Done> done_;
};

}  // namespace smelt
