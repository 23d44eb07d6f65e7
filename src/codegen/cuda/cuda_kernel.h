// A kernel that is ready to be started on a device.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "codegen/cuda/cuda_code.h"
#include "codegen/cuda/driver.h"

namespace smelt::cuda {

class JoinedKernels;

// All that starting a kernel takes, worked out for one launch.
struct Start {
  std::vector<uint64_t> arguments;  // in the order of the text; a workspace, if any, is missing
  int64_t blocks = 0;               // along x; 0: there is nothing to do
  int64_t points = 0;               // of the second kernel; 0: there is none
  int64_t workspace_bytes = 0;
  bool unaligned = false, long_index = false;
};

class CudaKernel final : public LoadedKernel {
 public:
  // Where the device's context is there already, the code is loaded into it.
  explicit CudaKernel(const KernelImage& image);
  ~CudaKernel() override;

  Start start(const Launch& launch, std::span<const int64_t> symbols) const;
  // Queues the kernel; the context of its device is the current one.
  void launch(Start start, Host& host) const;

  const CudaCode& code() const { return code_; }
  const std::string& architecture() const { return architecture_; }
  const Device& device() const { return device_; }
  CuContext context() const;
  // The same for equal kernels.
  const void* identity() const { return packed_.get(); }
  // No other kernel of this process has or had it.
  uint64_t number() const { return number_; }
  // Of the batches that begin with this kernel.
  JoinedKernels& joined() const { return *joined_; }

 private:
  struct Functions {
    CuModule module = nullptr;
    CuFunction main = nullptr, finish = nullptr;
  };

  const Functions& functions(bool unaligned, bool long_index) const;
  Functions load(const std::string& machine_code) const;

  const uint64_t number_;
  const std::string architecture_;
  const Device device_;
  const std::shared_ptr<const std::string> packed_;
  const CudaCode code_;
  const std::vector<KernelImage::Buffer> buffers_;
  const Sizes sizes_;
  const int32_t params_;
  const bool long_index_;
  mutable std::mutex mutex_;
  mutable std::map<std::pair<bool, bool>, Functions> functions_;
  mutable CuContext context_ = nullptr;
  const std::unique_ptr<JoinedKernels> joined_;
};

// The current context of this thread, or else that one: a thread that has not called CUDA before
// has none.
void ensure_context(CuContext context);

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
