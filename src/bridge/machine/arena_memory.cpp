#include "bridge/machine/arena_memory.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/CPUAllocator.h>

#include <cstring>

#include "compile/memory_plan.h"
#include "diagnostics/counters.h"

namespace smelt {
namespace {

void drop_block(void* block) {
  c10::raw::intrusive_ptr::decref(static_cast<c10::intrusive_ptr_target*>(block));
}

using Block = c10::intrusive_ptr<c10::StorageImpl>;

Block take_block(int64_t bytes) {
  c10::Allocator* const allocator = c10::GetCPUAllocator();
  return c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                               allocator->allocate(bytes), allocator,
                                               /*resizable=*/false);
}

// Between two runs of this thread. A run has it for itself: another one inside of it, by an op that
// calls a compiled function, takes its own.
thread_local Block kept;

}  // namespace

ArenaMemory::ArenaMemory(int64_t bytes) {
  if (bytes == 0) return;
  if (bytes > kKeptBlock)
    block_ = take_block(bytes);
  else
    block_ = kept ? std::move(kept) : take_block(kKeptBlock);
}

ArenaMemory::~ArenaMemory() {
  // A tensor may still lie in it, if an op has kept it in a run that failed.
  if (block_ && block_->nbytes() == kKeptBlock && block_.use_count() == 1) kept = std::move(block_);
}

at::Tensor ArenaMemory::tensor(std::byte* address, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                               c10::ScalarType dtype) const {
  const caffe2::TypeMeta type = c10::scalarTypeToTypeMeta(dtype);
  const size_t bytes = at::detail::computeStorageNbytes(sizes, strides, type.itemsize());
  c10::intrusive_ptr_target* const block = block_.get();
  c10::raw::intrusive_ptr::incref(block);
  c10::DataPtr place(address, block, &drop_block, c10::Device(c10::kCPU));
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                       std::move(place), c10::GetCPUAllocator(),
                                                       /*resizable=*/true);
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), type);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return tensor;
}

void ArenaMemory::leave(const at::Tensor& tensor) {
  const c10::Storage& storage = tensor.storage();
  if (tensor.use_count() == 1 && storage.use_count() == 1) return;
  // One that was resized has left already.
  if (storage.data_ptr().get_deleter() != &drop_block) return;
  c10::DataPtr copy = c10::GetCPUAllocator()->allocate(storage.nbytes());
  if (storage.nbytes() > 0) std::memcpy(copy.mutable_get(), storage.data(), storage.nbytes());
  storage.unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(copy));
  count(Counter::arena_copies);
}

}  // namespace smelt
