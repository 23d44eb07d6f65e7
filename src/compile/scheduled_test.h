// Graphs through schedule and lowering, for tests that look at the program. Kernels are named, not
// compiled.
#pragma once

#include <string>
#include <vector>

#include "compile/compile.h"

namespace smelt {

inline std::string scheduled_and_lowered(const std::string& text) {
  const Graph graph = Graph::parse(text);
  graph.verify();
  Record record;
  const Schedule schedule = make_schedule(graph, {}, record);
  return lower(graph, schedule, std::vector<KernelCode>(schedule.kernels.size())).str();
}

}  // namespace smelt
