#include "compile/compile.h"

#include <chrono>

#include "base/counters.h"
#include "base/log.h"

namespace smelt {

Program compile(Graph& graph, const PassOptions& options, Record& record) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();

  run_passes(graph, options, record);

  const auto lowering = Clock::now();
  Program program = lower(graph);
  const auto end = Clock::now();

  record.entries.push_back({.stage = "compile",
                            .name = "lower",
                            .seconds = std::chrono::duration<double>(end - lowering).count(),
                            .changed = true,
                            .note = std::to_string(program.steps.size()) + " steps, " +
                                    std::to_string(program.registers) + " registers"});
  count(Counter::compile_ns,
        std::chrono::duration_cast<std::chrono::nanoseconds>(end - start).count());
  if (log_enabled(Log::program)) log(Log::program, program.str());
  return program;
}

}  // namespace smelt
