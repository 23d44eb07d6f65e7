// Graph to Program: the passes, the schedule, machine code, then one step per kernel or call with
// an early-release plan.
#pragma once

#include "base/record.h"
#include "codegen/cpu/cpu_module.h"
#include "graph/graph.h"
#include "passes/passes.h"
#include "runtime/program.h"
#include "schedule/schedule.h"

namespace smelt {

// What computes the nodes.
enum class Engine : uint8_t {
  calls,        // PyTorch's kernels, one per node: exactly as recorded
  native,       // generated kernels where ops have a meaning
  interpreted,  // the same kernels run by the loop interpreter: the oracle
};

struct CompileOptions {
  PassOptions passes;
  Engine engine = Engine::calls;
  ScheduleOptions schedule;
  CpuOptions cpu;
  // By argument of the recorded function: it is frozen, as PassOptions::frozen says.
  std::vector<bool> frozen;
};

// Improves the graph in place and lowers it. A kernel that can't be compiled is no error: its nodes
// are called.
Program compile(Graph& graph, CompileOptions options, Record& record);

// One step per node; registers released after their last use; symbols bound to input dimensions. An
// Error if a symbol stands in no input.
Program lower(const Graph& graph);
// The same for a schedule whose kernels are these.
Program lower(const Graph& graph, const Schedule& schedule, std::vector<KernelCode> kernels);

}  // namespace smelt
