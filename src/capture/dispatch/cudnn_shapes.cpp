// Asks cuDNN, through the PyTorch that is loaded, for what its batch norm keeps. Nothing is
// computed: cuDNN is given sizes, strides and a dtype. Without CUDA there is nobody to ask.
#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <dlfcn.h>

#include "aten/convert.h"
#include "capture/dispatch/shapes.h"
#include "ops/rules/cudnn_library.h"

namespace smelt {
namespace {

// at::native::_get_cudnn_batch_norm_reserve_space_size
using ReserveBytes = size_t (*)(const at::Tensor& input, bool training);

ReserveBytes find_reserve_bytes() {
  void* const library = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return nullptr;
  return reinterpret_cast<ReserveBytes>(
      dlsym(library, "_ZN2at6native40_get_cudnn_batch_norm_reserve_space_sizeERKNS_6TensorEb"));
}

// A tensor on the device without memory.
at::Tensor describe(const TensorType& type) {
  const c10::Device device = to_c10(type.device);
  c10::Storage storage(c10::Storage::use_byte_size_t{}, 0, c10::DataPtr(nullptr, device), nullptr,
                       false);
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CUDA),
      c10::scalarTypeToTypeMeta(to_scalar_type(type.dtype)));
  std::vector<int64_t> sizes, strides;
  for (const Size& size : type.sizes) sizes.push_back(size.known());
  for (const Size& stride : type.strides) strides.push_back(stride.known());
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return tensor;
}

std::optional<int64_t> ask_cudnn(const TensorType& input) {
  static const ReserveBytes reserve_bytes = find_reserve_bytes();
  if (reserve_bytes == nullptr || !all_known(input.sizes) || !all_known(input.strides))
    return std::nullopt;
  const c10::impl::ExcludeDispatchKeyGuard plain(recording_keys());
  return static_cast<int64_t>(reserve_bytes(describe(input), true));
}

[[maybe_unused]] const bool kCudnnIsKnown = (cudnn_batch_norm_bytes = ask_cudnn, true);

}  // namespace
}  // namespace smelt
