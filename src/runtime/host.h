// What back ends ask of the process: threads and memory of theirs, for kernels that run on the
// host; for those of another device, its stream and its memory. The program that embeds smelt
// supplies it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "base/type.h"

namespace smelt {

class Host {
 public:
  virtual ~Host() = default;
  // How many threads may work at the same time; 1 inside of work that is shared already.
  virtual int threads() const = 0;
  // Calls body(0) ... body(parts - 1), each once, on these threads, and waits for all of them. The
  // first exception that leaves a body is thrown when all are done.
  virtual void run(int64_t parts, const std::function<void(int64_t)>& body) = 0;
  // Memory of the calling thread, aligned to a page, valid until the next call on that thread. An
  // exception where there is none.
  virtual std::byte* scratch(size_t bytes) = 0;

  // Where work for a device is queued at present, as its driver names it (a cudaStream_t).
  virtual void* stream(const Device& device) = 0;
  // Memory of a device, for work that is queued on that stream while it is held. An exception where
  // there is none.
  virtual std::shared_ptr<void> device_memory(const Device& device, size_t bytes) = 0;
};

}  // namespace smelt
