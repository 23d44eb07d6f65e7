// Memory for what captured CUDA graphs need inside. PyTorch's allocator keeps it apart from other
// memory for as long as the pool is held: a graph has the addresses in its kernels. PyTorch offers
// such pools to Python alone, so that the binding makes them.
#pragma once

#include <memory>

namespace smelt {

class CapturePool {
 public:
  virtual ~CapturePool() = default;
  // Between the two this thread's allocations on the device come from the pool.
  virtual void enter() = 0;
  virtual void leave() = 0;
};

using MakeCapturePool = std::unique_ptr<CapturePool> (*)(int device);
void set_capture_pools(MakeCapturePool make);

// What graphs that are launched on one stream share: one runs behind the other, and nothing that a
// caller holds lies in the pool, so that they may all use the same memory.
class CaptureStream {
 public:
  // Of the stream that graphs are launched on. Nothing where no pool can be made.
  static std::shared_ptr<CaptureStream> of(int device, void* launch_stream);
  ~CaptureStream();
  CaptureStream(const CaptureStream&) = delete;
  CaptureStream& operator=(const CaptureStream&) = delete;

  CapturePool& pool() { return *pool_; }
  void* stream() const { return stream_; }  // that work is captured on
  // Libraries take their workspace for a thread and stream once, and keep it: not from the pool.
  void warm_up(int device);

 private:
  explicit CaptureStream(std::unique_ptr<CapturePool> pool);

  std::unique_ptr<CapturePool> pool_;
  void* stream_ = nullptr;
};

}  // namespace smelt
