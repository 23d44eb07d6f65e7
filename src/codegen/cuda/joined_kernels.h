// Batches of kernels, started as few: see joined_source.h. Which kernels of a batch are joined is
// decided when the batch runs for the second time; that is when the joined ones are compiled.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "codegen/cuda/cuda_kernel.h"

namespace smelt::cuda {

// A kernel of a batch, with what this launch of it takes.
struct Started {
  const CudaKernel* kernel = nullptr;
  Start start;
};

// The batches that begin with one kernel. Thread-safe.
class JoinedKernels {
 public:
  JoinedKernels();
  ~JoinedKernels();
  void launch(std::span<Started> batch, Host& host);

 private:
  struct Batch;
  std::shared_ptr<const Batch> find(std::span<const Started> batch, bool may_make);

  std::mutex mutex_;
  struct Seen {
    int runs = 0;
    std::shared_ptr<const Batch> made;  // null before it is made
  };
  std::map<std::vector<uint64_t>, Seen> seen_;  // by the numbers of its kernels
};

// The positions of a batch that are joined, part by part. What is in none runs by itself.
std::vector<std::vector<size_t>> choose_parts(std::span<const Started> batch);

}  // namespace smelt::cuda
