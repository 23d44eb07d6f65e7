// The block of memory of one run, and tensors in it.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>

#include <cstddef>
#include <cstdint>

namespace smelt {

class ArenaMemory {
 public:
  // PyTorch's exception where there is no memory. None is taken for 0 bytes.
  explicit ArenaMemory(int64_t bytes);
  ~ArenaMemory();
  ArenaMemory(const ArenaMemory&) = delete;
  ArenaMemory& operator=(const ArenaMemory&) = delete;

  std::byte* at(int64_t offset) const {
    return static_cast<std::byte*>(block_->mutable_data()) + offset;
  }
  // A tensor that begins at the address, in a storage of its own: an op sees the tensor's bytes
  // and not the block. It keeps the block alive.
  at::Tensor tensor(std::byte* address, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                    c10::ScalarType dtype) const;
  // The program is done with such a tensor, and its place will be written. If anybody else holds
  // the tensor or its storage (an op returned its argument as it is), that becomes a copy.
  static void leave(const at::Tensor& tensor);

 private:
  c10::intrusive_ptr<c10::StorageImpl> block_;
};

}  // namespace smelt
