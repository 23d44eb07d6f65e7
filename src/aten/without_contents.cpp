#include "aten/without_contents.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty.h>

#include "aten/convert.h"

namespace smelt {

at::Tensor without_contents(at::IntArrayRef sizes, at::IntArrayRef strides,
                            const at::TensorOptions& options) {
  at::Tensor tensor = at::empty({0}, options);
  const size_t bytes = at::detail::computeStorageNbytes(sizes, strides, tensor.itemsize());
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(c10::Storage(c10::Storage::use_byte_size_t(), bytes,
                                            c10::DataPtr(nullptr, tensor.device()),
                                            /*allocator=*/nullptr, /*resizable=*/false));
  impl->set_sizes_and_strides(sizes, strides);
  return tensor;
}

at::Tensor without_contents(const TensorType& type) {
  return without_contents(known_sizes(type.sizes), known_sizes(type.strides),
                          at::dtype(to_scalar_type(type.dtype)).device(to_c10(type.device)));
}

}  // namespace smelt
