// A kernel that is ready to be started on a device.
#pragma once

#include <map>
#include <mutex>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "codegen/cuda/cuda_code.h"
#include "codegen/cuda/driver.h"

namespace smelt::cuda {

class CudaKernel final : public LoadedKernel {
 public:
  // Where the device's context is there already, the code is loaded into it.
  explicit CudaKernel(const KernelImage& image);
  ~CudaKernel() override;

  // Queues the kernel; the context of its device is the current one.
  void launch(const Launch& launch, std::span<const int64_t> symbols, Host& host) const;

 private:
  struct Functions {
    CuModule module = nullptr;
    CuFunction main = nullptr, finish = nullptr;
  };

  const Functions& functions(bool unaligned, bool long_index) const;
  Functions load(const std::string& machine_code) const;

  const std::string architecture_;
  const Device device_;
  const CudaCode code_;
  const std::vector<KernelImage::Buffer> buffers_;
  const Sizes sizes_;
  const int32_t params_;
  const bool long_index_;
  mutable std::mutex mutex_;
  mutable std::map<std::pair<bool, bool>, Functions> functions_;
  mutable CuContext context_ = nullptr;
};

// Makes a context the current one of this thread while it lives.
class WithContext {
 public:
  explicit WithContext(CuContext context);
  ~WithContext();
  WithContext(const WithContext&) = delete;
  WithContext& operator=(const WithContext&) = delete;
};

// The context that PyTorch uses on a device; nullptr: it has not made it yet.
CuContext active_context(int device);
// "sm_90", of the device that is current, or the first; "sm_90" where none is in use.
std::string current_architecture();

}  // namespace smelt::cuda
