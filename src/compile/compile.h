// Graph to Program: the passes, the schedule, machine code, then one step per kernel or call with
// an early-release plan.
#pragma once

#include <functional>

#include "backend/backend.h"
#include "base/settings.h"
#include "diagnostics/record.h"
#include "graph/graph.h"
#include "passes/passes.h"
#include "runtime/program.h"
#include "schedule/schedule.h"

namespace smelt {

struct CompileOptions {
  PassOptions passes;
  // By `schedule.backends` nodes become kernels where ops have a meaning. If there are none,
  // PyTorch's kernels are called, one per node: exactly as recorded.
  ScheduleOptions schedule;
  KernelOptions kernels;
  // The caller gives the inputs away: each is released after its last use, and its memory taken for
  // results if nobody else holds it.
  bool release_inputs = false;
  // By argument of the recorded function: it is frozen, as PassOptions::frozen says.
  std::vector<bool> frozen;
  GraphUse cuda_graphs = GraphUse::never;
  // Programs at a time that are for sizes which come again, beside the one for all sizes.
  int specialize = 0;
  // The code is made on another thread, while the program runs without.
  bool background = false;
  // Whoever runs the program gives the values of its symbols; else inputs have to have them.
  bool has_symbol_values = false;
};

// Those that the user's settings ask for; all else is as it is by itself. `module_state`: by
// argument, it is a parameter or buffer of a module, which settings may freeze.
CompileOptions compile_options(const Settings& settings, std::vector<bool> module_state = {});

// Improves the graph in place and lowers it. A kernel that can't be compiled is no error: its nodes
// are called.
Program compile(Graph& graph, CompileOptions options, Record& record);

// What PassOptions::has_kernels asks.
std::function<bool(const Device&)> has_kernels(const ScheduleOptions& options);

// One step per node; registers released after their last use; symbols bound to input dimensions,
// unless a run is given their values. An Error if a symbol stands in no input then.
struct LowerOptions {
  bool release_inputs = false;
  bool has_symbol_values = false;
};
Program lower(const Graph& graph, LowerOptions options = {});
// The same for a schedule whose kernels are these.
Program lower(const Graph& graph, const Schedule& schedule, std::vector<KernelImage> kernels,
              LowerOptions options = {});

}  // namespace smelt
