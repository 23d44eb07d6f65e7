#include "compile/compile.h"

#include <chrono>

#include "compile/kernels.h"
#include "diagnostics/counters.h"
#include "diagnostics/log.h"
#include "passes/splitting/split_frozen.h"
#include "runtime/verify_program.h"

namespace smelt {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

LowerOptions lower_options(const CompileOptions& options) {
  return {.release_inputs = options.release_inputs, .has_symbol_values = options.has_symbol_values};
}

// Nothing is lost if machine code can't be made: the nodes are called then.
Program lower_with_kernels(const Graph& graph, const CompileOptions& options, Record& record) {
  try {
    const Schedule schedule = make_schedule(graph, options.schedule, record);
    if (log_enabled(Log::schedule)) log(Log::schedule, "\n" + schedule.str(graph));
    if (log_enabled(Log::code))
      for (const ScheduledKernel& scheduled : schedule.kernels)
        log(Log::code, "\n" + scheduled.kernel.str());
    return lower(graph, schedule, make_kernels(schedule, options, graph.symbols, record),
                 lower_options(options));
  } catch (const InternalError& error) {
    warn_once("kernels could not be made, and PyTorch's are called instead: " +
              std::string(error.what()));
    return lower(graph, lower_options(options));
  }
}

}  // namespace

CompileOptions compile_options(const Settings& settings, std::vector<bool> module_state) {
  CompileOptions options;
  options.passes.disabled = settings.disabled_passes;
  options.schedule.fusion = settings.fusion;
  options.schedule.max_fused_nodes = settings.max_fused_nodes;
  options.kernels.contract = settings.contract;
  options.cuda_graphs = settings.cuda_graphs;
  options.specialize = settings.specialize;
  options.background = settings.background;
  if (settings.freeze) options.frozen = std::move(module_state);
  return options;
}

std::function<bool(const Device&)> has_kernels(const ScheduleOptions& options) {
  if (options.backends.empty()) return {};
  return [backends = options.backends](const Device& device) {
    return backend_for(backends, device) != nullptr;
  };
}

Program compile(Graph& graph, CompileOptions options, Record& record) {
  const auto start = Clock::now();
  const bool with_kernels = !options.schedule.backends.empty();
  options.passes.has_kernels = has_kernels(options.schedule);
  if (with_kernels)
    options.passes.drawing_blocks = [backends = options.schedule.backends](const Device& device) {
      const Backend* backend = backend_for(backends, device);
      return backend ? backend->drawing_blocks(device) : 0;
    };

  run_passes(graph, options.passes, record);
  const std::optional<Graph> preparation = split_frozen(graph, options.passes.frozen);

  const auto lowering = Clock::now();
  const auto lowered = [&](const Graph& part) {
    return with_kernels ? lower_with_kernels(part, options, record)
                        : lower(part, lower_options(options));
  };
  Program program = lowered(graph);
  if (preparation) program.preparation = std::make_shared<const Program>(lowered(*preparation));
  record.entries.push_back({.stage = "compile",
                            .name = "lower",
                            .seconds = seconds_since(lowering),
                            .changed = true,
                            .note = std::to_string(program.steps.size()) + " steps, " +
                                    std::to_string(program.registers) + " registers"});
  if (options.passes.verify) verify(program);
  count(Counter::compile_ns,
        std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count());
  if (log_enabled(Log::program)) log(Log::program, program.str());
  return program;
}

}  // namespace smelt
