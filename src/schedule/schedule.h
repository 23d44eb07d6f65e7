// Which nodes share a kernel, and in which order kernels and other nodes run.
#pragma once

#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/settings.h"
#include "diagnostics/record.h"
#include "graph/graph.h"
#include "loops/kernel.h"

namespace smelt {

struct ScheduleOptions {
  Fusion fusion = Fusion::full;
  int max_fused_nodes = 64;
  // What is added up at one place may be added in any order, another one each time. Elsewhere than
  // on the host that is how threads share such sums.
  bool any_order = false;
  // Who may make kernels, at most one for each kind of device. On devices of none, and if there are
  // none at all, every node runs by itself, through the dispatcher.
  std::vector<const Backend*> backends;
};

// A kernel of a program: buffers are values of the graph. For an input that is a view of another
// value the kernel reads the view itself (its strides, its offset).
struct ScheduledKernel {
  loops::Kernel kernel;
  const Backend* backend = nullptr;  // that compiles it
  Device device;                     // of all its buffers
  std::vector<ValueId> buffers;      // per buffer of the kernel; -1 for scratch
  std::vector<ValueId> bases;   // per buffer: what an updated one begins as; -1: zeros, or none
  std::vector<ValueId> params;  // per parameter: the number
  std::vector<NodeId> nodes;    // what it computes
};

// Exactly one of the two.
struct Unit {
  NodeId node = -1;
  int32_t kernel = -1;
};

// A kernel that reads another's results, and why the two are not one.
struct KernelBoundary {
  int32_t before, after;
  std::string why;
};

struct Schedule {
  std::vector<ScheduledKernel> kernels;
  std::vector<Unit> order;
  std::vector<std::string> refusals;  // "aten::sort: no meaning", for explain
  std::vector<KernelBoundary> boundaries;
  std::string str(const Graph& graph) const;
};

Schedule make_schedule(const Graph& graph, const ScheduleOptions& options, Record& record);

}  // namespace smelt
