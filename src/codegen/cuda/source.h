// The CUDA C++ text of a kernel, and the facts that starting it takes. The text is the same for all
// variants of a kernel: for buffers that are not aligned, and for indices of 64 bits, it is
// compiled with other options.
#pragma once

#include <string>
#include <vector>

#include "codegen/cuda/plan.h"
#include "loops/kernel.h"

namespace smelt::cuda {

struct Facts {
  std::string entry;    // of the kernel that combines slices: with "_finish" behind it
  int64_t threads = 1;  // of a block
  int64_t each = 1;     // items of a block
  Size items = 1;       // see Plan
  int64_t slices = 1;
  int64_t finish_threads = 1, finish_each = 1;
  Size points = 1;                 // items of the second kernel
  std::vector<int64_t> alignment;  // per buffer, in bytes
  Sizes reach;                     // if one of these is large, indices have 64 bits
  // Bytes of workspace: for each outer point and slice, and for each item that is in flight.
  std::vector<int64_t> partial_bytes;
  Sizes scratch_bytes;
  bool contract = true;

  std::string str() const;
  static Facts parse(std::string_view text);
};

struct Source {
  Facts facts;
  std::string text;  // without the device helpers
};

Source write_source(const loops::Kernel& kernel, bool contract, const PlanOptions& options = {});
// The helpers that every text needs before it: device/*.cuh.
const std::string& device_text();

}  // namespace smelt::cuda
