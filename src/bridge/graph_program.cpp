#include "bridge/graph_program.h"

#include <utility>

#include "aten/convert.h"
#include "bridge/autograd/consumed_node.h"
#include "bridge/autograd/generator_states.h"
#include "bridge/autograd/written_versions.h"
#include "bridge/dropped_gradients.h"
#include "bridge/recorded_graph.h"

namespace smelt {

RunOutcome GraphProgram::run_compiled(const std::vector<at::Tensor>& inputs,
                                      std::span<const c10::Scalar> scalars, OnFailure) const {
  // A dual number of forward-mode autograd has the type of a plain tensor.
  for (const at::Tensor& input : inputs)
    if (input._fw_grad(0).defined()) return {};
  GeneratorStates states(log_.generators());
  std::vector<at::Tensor> arguments = inputs;
  add_numbers(graph_.impl(), scalars, arguments);
  DroppedGradients dropped(log_, inputs);
  WrittenVersions versions(inputs, log_.version_rises());
  RunOutcome outcome = graph_.impl().run_typed(std::move(arguments), log_.symbols(scalars));
  if (!outcome.is_done()) {
    states.restore();
    if (outcome.kind != RunOutcome::Kind::mispredicted) return outcome;
    if (!log_.expects()) return {};
    dropped.restore();
    return outcome;  // most likely it is what the log expects
  }
  try {
    versions.settle(outcome.outputs);
    for (size_t i : consumed_) mark_consumed(outcome.outputs[i]);
  } catch (const std::exception&) {
    states.restore();
    return RunOutcome::failed(outcome.changed);
  }
  return outcome;
}

std::vector<Guard> GraphProgram::size_guards() const {
  return graph_.impl().program->program().symbols.guards();
}

std::vector<std::string> GraphProgram::own_sizes() const { return graph_.impl().own_sizes(); }

std::string GraphProgram::str() const {
  const std::string launching = graph_.impl().program->launching();
  return (launching.empty() ? "" : "# " + launching + "\n") + graph_.str();
}

}  // namespace smelt
