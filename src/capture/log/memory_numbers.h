// Memory as numbers, as a log has it: tensors that share storage have the same one.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "base/log_ids.h"

namespace smelt {

// Storages are held weakly: an address is not used twice, and memory is freed as early as in eager.
class MemoryNumbers {
 public:
  // 0: the tensor has no storage.
  int32_t of(const at::Tensor& tensor);
  void add(int32_t memory, LogValue value);
  // Of the memory 0, whose values may lie anywhere: none.
  const std::vector<LogValue>& values_on(int32_t memory) const { return values_[memory]; }
  void mark_input(int32_t memory) { is_input_[memory] = true; }
  // What has no storage may be an input's.
  bool is_input(int32_t memory) const { return memory == 0 || is_input_[memory]; }
  // For a log to which nothing is added.
  MemoryNumbers without_storages() const;

 private:
  std::unordered_map<c10::StorageImpl*, int32_t> numbers_;
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> storages_;  // keep the addresses
  std::vector<bool> is_input_{true};
  std::vector<std::vector<LogValue>> values_ = std::vector<std::vector<LogValue>>(1);
};

}  // namespace smelt
