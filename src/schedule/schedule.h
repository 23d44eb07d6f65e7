// Which nodes share a kernel, and in which order kernels and other nodes run.
#pragma once

#include <string>
#include <vector>

#include "base/record.h"
#include "graph/graph.h"
#include "loops/kernel.h"

namespace smelt {

enum class Fusion : uint8_t {
  none,       // a kernel per node
  pointwise,  // chains of pointwise nodes
  full,       // reductions with what comes before and after, siblings
};

struct ScheduleOptions {
  Fusion fusion = Fusion::full;
  int max_fused_nodes = 64;
  bool kernels = true;  // false: every node by itself, through the dispatcher
};

// A kernel of a program: buffers are values of the graph. For an input that is a view of another
// value the kernel reads the view itself (its strides, its offset).
struct ScheduledKernel {
  loops::Kernel kernel;
  std::vector<ValueId> buffers;  // per buffer of the kernel; -1 for scratch
  std::vector<ValueId> bases;    // per buffer: what an updated one begins as; -1: zeros, or none
  std::vector<NodeId> nodes;     // what it computes
};

// Exactly one of the two.
struct Unit {
  NodeId node = -1;
  int32_t kernel = -1;
};

struct Schedule {
  std::vector<ScheduledKernel> kernels;
  std::vector<Unit> order;
  std::vector<std::string> refusals;  // "aten::sort: no meaning", for explain
  std::string str(const Graph& graph) const;
};

Schedule make_schedule(const Graph& graph, const ScheduleOptions& options, Record& record);

}  // namespace smelt
