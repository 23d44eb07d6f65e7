#include "capture/log/memory_numbers.h"

namespace smelt {

int32_t MemoryNumbers::of(const at::Tensor& tensor) {
  if (!tensor.has_storage()) return 0;
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  const auto [it, is_new] = numbers_.try_emplace(storage, 0);
  if (is_new) {
    it->second = static_cast<int32_t>(is_input_.size());
    is_input_.push_back(false);
    values_.emplace_back();
    storages_.push_back(tensor.storage().getWeakStorageImpl());
  }
  return it->second;
}

void MemoryNumbers::add(int32_t memory, LogValue value) {
  if (memory != 0) values_[memory].push_back(value);
}

MemoryNumbers MemoryNumbers::without_storages() const {
  MemoryNumbers numbers;
  numbers.is_input_ = is_input_;
  numbers.values_.resize(is_input_.size());
  return numbers;
}

}  // namespace smelt
