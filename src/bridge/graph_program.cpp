#include "bridge/graph_program.h"

#include <algorithm>

#include "base/counters.h"
#include "bridge/generator_states.h"
#include "bridge/recorded_graph.h"

namespace smelt {
namespace {

// Which of the two to run, as long as both call PyTorch's kernels one by one. A step of a graph
// costs about as much as an op of a log. Where PyTorch composes an op of others, the graph has
// several steps for it, but the log goes through those too, with autograd's part on top; and passes
// remove what is computed twice. Microseconds per run on small tensors, log and graph, on a busy
// machine where less than a tenth means nothing: 30 additions 23, 22; 30 relus 20, 21; six linear
// layers with relu 18, 15; three einsums 24, 4.5. In-place code is the exception (37, 39 for 30
// ops, and more on large tensors): its functional form computes into new memory, and copies.
Decision graph_is_faster(const LogProgram& log) {
  return log.writes() ? Decision::forbid("in-place ops are fastest as they are")
                      : Decision::allow();
}

}  // namespace

GraphProgram::GraphProgram(const OpLog& log, std::span<const LogValue> inputs,
                           std::span<const LogValue> outputs, Want want)
    : log_(log, inputs, outputs) {
  if (log_.ops() == 0) return;
  if (want != Want::log) {
    Decision decision = can_record(log, inputs, outputs);
    if (decision && want == Want::fastest) decision = graph_is_faster(log_);
    if (decision)
      record(log, inputs);
    else
      refusal_ = decision.reason();
  }
  if (graph_) return;  // the recorder has counted it
  count(Counter::graphs);
  count(Counter::ops_fallback, static_cast<int64_t>(log_.ops()));
}

Decision GraphProgram::can_record(const OpLog& log, std::span<const LogValue> inputs,
                                  std::span<const LogValue> outputs) const {
  if (log_.uses_autograd()) return Decision::forbid("its results take part in autograd");
  for (const LogItem& item : log.items())
    if (log.ambients()[item.ambient].inference != log.ambients()[0].inference)
      return Decision::forbid("inference mode is switched inside");
  for (LogValue input : inputs) {
    const at::Tensor tensor = log.tensor(input);
    if (!tensor.defined()) return Decision::forbid("an input is gone");
    const LoggedTensor& then = log.values()[input];
    if (tensor.layout() != c10::kStrided || tensor.sizes() != then.sizes ||
        tensor.strides() != then.strides || tensor.scalar_type() != then.dtype)
      return Decision::forbid("the type of an input is changed");
  }
  // Autograd must know such outputs as views of each other.
  std::vector<int32_t> seen;
  for (LogValue output : outputs) {
    if (output < 0 || log.values()[output].kind == LoggedTensor::Kind::input) continue;
    const int32_t memory = log.values()[output].memory;
    if (std::find(seen.begin(), seen.end(), memory) != seen.end())
      return Decision::forbid("two outputs share memory");
    seen.push_back(memory);
  }
  return Decision::allow();
}

void GraphProgram::record(const OpLog& log, std::span<const LogValue> inputs) {
  std::vector<at::Tensor> examples;
  for (LogValue input : inputs) examples.push_back(log.tensor(input));
  try {
    graph_ = smelt::record(
        [this](const std::vector<at::Tensor>& twins) { return log_.replay(twins); }, examples);
  } catch (const std::exception& error) {
    refusal_ = error.what();
  }
}

std::vector<at::Tensor> GraphProgram::run(std::vector<at::Tensor> inputs) const {
  if (!graph_) return log_.run(std::move(inputs));
  // A dual number of forward-mode autograd has the type of a plain tensor.
  const bool dual = std::any_of(inputs.begin(), inputs.end(), [](const at::Tensor& input) {
    return input._fw_grad(0).defined();
  });
  if (!dual) {
    GeneratorStates states(log_.generators());
    try {
      if (auto outputs = graph_->impl().run_typed(inputs)) return std::move(*outputs);
    } catch (...) {
      states.restore();
      throw;
    }
  }
  return log_.run(std::move(inputs));
}

std::string GraphProgram::str() const {
  if (graph_) return graph_->str();
  std::string text = log_.str();
  if (!refusal_.empty()) text = "# op by op: " + refusal_ + "\n" + text;
  return text;
}

}  // namespace smelt
