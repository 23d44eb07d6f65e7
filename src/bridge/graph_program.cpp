#include "bridge/graph_program.h"

#include <ATen/ScalarOps.h>

#include <ATen/SavedTensorHooks.h>

#include <algorithm>

#include "base/counters.h"
#include "bridge/generator_states.h"
#include "bridge/recorded_graph.h"

namespace smelt {
namespace {

// Which of the two to run. With generated kernels the graph, except where it writes to tensors of
// the caller: there its functional form computes into new memory, and copies.
//
// Without, both call PyTorch's kernels one by one. A step of a graph
// costs about as much as an op of a log. Where PyTorch composes an op of others, the graph has
// several steps for it, but the log goes through those too, with autograd's part on top; and passes
// remove what is computed twice. Microseconds per run on small tensors, log and graph, on a busy
// machine where less than a tenth means nothing: 30 additions 23, 22; 30 relus 20, 21; six linear
// layers with relu 18, 15; three einsums 24, 4.5. In-place code is the exception (37, 39 for 30
// ops, and more on large tensors): its functional form computes into new memory, and copies.
Decision graph_is_faster(const OpLog& log, const LogProgram& program) {
  const bool kernels = cpu_target() != "none";
  if (!program.writes()) return Decision::allow();
  const auto is_outside = [&](LogValue value) {
    return log.is_input_memory(log.values()[value].memory);
  };
  const bool outside =
      std::any_of(log.items().begin(), log.items().end(), [&](const LogItem& item) {
        return std::any_of(item.written.begin(), item.written.end(), is_outside);
      });
  return kernels && !outside ? Decision::allow()
                             : Decision::forbid("in-place ops are fastest as they are");
}

// bool, integers, floating point, complex: a number of a higher one changes the type of a result.
int category(c10::ScalarType type) {
  if (c10::isComplexType(type)) return 3;
  if (c10::isFloatingType(type)) return 2;
  return type == c10::kBool ? 0 : 1;
}

// A graph gets run-time scalars as 0-dim tensors. For the type of a result such a tensor counts as
// the number does if there is a tensor with dimensions of its category beside it, or of a higher
// one. An op that takes a number itself would have it in the graph.
Decision numbers_can_be_tensors(const OpLog& log) {
  for (const LogItem& item : log.items()) {
    for (const LogScalar& scalar : item.scalars) {
      if (!scalar.is_tensor)
        return Decision::forbid(item.op->name.str() + " takes a number that changes");
      if (log.ambients()[item.ambient].any_autocast())
        return Decision::forbid("a number that changes, under autocast");
      const int number = category(item.arguments[scalar.argument].toTensor().scalar_type());
      const bool decided =
          std::any_of(item.slots.begin(), item.slots.end(), [&](const LogSlot& slot) {
            if (slot.is_list || slot.values[0] < 0) return false;
            const LoggedTensor& tensor = log.values()[slot.values[0]];
            return !tensor.sizes.empty() && category(tensor.dtype) >= number;
          });
      if (!decided)
        return Decision::forbid(item.op->name.str() +
                                " takes a number that changes and decides about the result's type");
    }
  }
  return Decision::allow();
}

// What a run-time scalar was when traced.
at::Tensor example_of(const OpLog& log, ScalarId id) {
  for (const LogItem& item : log.items())
    for (const LogScalar& scalar : item.scalars)
      if (scalar.id == id)
        return c10::scalar_to_tensor(item.arguments[scalar.argument].toTensor().item());
  return {};
}

// A program without generated kernels is op by op what the log is, with more around it.
Decision can_train(const OpLog& log, std::span<const LogValue> inputs,
                   std::span<const LogValue> outputs, GraphProgram::Want want) {
  const bool kernels = want == GraphProgram::Want::interpreted ||
                       (want == GraphProgram::Want::fastest && cpu_target() != "none");
  if (!kernels) return Decision::forbid("its results take part in autograd");
  return TrainingProgram::can_train(log, inputs, outputs);
}

}  // namespace

GraphProgram::GraphProgram(const OpLog& log, std::span<const LogValue> inputs,
                           std::span<const LogValue> outputs, Want want,
                           std::span<const ScalarId> scalars, const CompileOptions& options)
    : log_(log, inputs, outputs, scalars) {
  if (log_.ops() == 0) return;
  if (want != Want::log) {
    const bool tracked = log_.uses_autograd();
    Decision decision = can_record(log, inputs, outputs);
    if (decision && tracked) decision = can_train(log, inputs, outputs, want);
    if (decision && want == Want::fastest && !tracked) decision = graph_is_faster(log, log_);
    if (decision) {
      CompileOptions wanted = options;
      wanted.engine = want == Want::interpreted ? Engine::interpreted
                      : want == Want::fastest   ? Engine::native
                                                : Engine::calls;
      if (tracked)
        train(log, inputs, outputs, wanted);
      else
        record(log, inputs, wanted);
    } else {
      refusal_ = decision.reason();
    }
  }
  if (graph_ || training_) return;  // the recorder has counted it
  count(Counter::graphs);
  count(Counter::ops_fallback, static_cast<int64_t>(log_.ops()));
}

Decision GraphProgram::can_record(const OpLog& log, std::span<const LogValue> inputs,
                                  std::span<const LogValue> outputs) const {
  if (Decision decision = numbers_can_be_tensors(log); !decision) return decision;
  for (const LogItem& item : log.items())
    if (item.op == &opaque_op()) return Decision::forbid("it calls autograd or Python code");
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

void GraphProgram::record(const OpLog& log, std::span<const LogValue> inputs,
                          const CompileOptions& options) {
  std::vector<at::Tensor> examples;
  for (LogValue input : inputs) examples.push_back(log.tensor(input));
  for (ScalarId scalar : log_.scalars()) examples.push_back(example_of(log, scalar));
  const auto replay = [&](const std::vector<at::Tensor>& twins) {
    const auto scalars = twins.begin() + std::ssize(inputs);
    return log_.replay({twins.begin(), scalars}, {scalars, twins.end()});
  };
  try {
    graph_ = record_as(replay, examples, {}, options);
  } catch (const std::exception& error) {
    refusal_ = error.what();
  }
}

void GraphProgram::train(const OpLog& log, std::span<const LogValue> inputs,
                         std::span<const LogValue> outputs, const CompileOptions& options) {
  try {
    std::vector<at::Tensor> scalars;
    for (ScalarId scalar : log_.scalars()) scalars.push_back(example_of(log, scalar));
    training_ =
        std::make_shared<const TrainingProgram>(log, log_, inputs, outputs, scalars, options);
  } catch (const std::exception& error) {
    refusal_ = error.what();
  }
}

std::vector<at::Tensor> GraphProgram::run(std::vector<at::Tensor> inputs,
                                          std::span<const c10::Scalar> scalars) const {
  if (training_) {
    for (const c10::Scalar& scalar : scalars) inputs.push_back(c10::scalar_to_tensor(scalar));
    if (auto outputs = training_->run(inputs)) return std::move(*outputs);
    inputs.resize(inputs.size() - scalars.size());
  }
  if (!graph_) return log_.run(std::move(inputs), scalars);
  // A dual number of forward-mode autograd has the type of a plain tensor.
  const bool dual = std::any_of(inputs.begin(), inputs.end(), [](const at::Tensor& input) {
    return input._fw_grad(0).defined();
  });
  if (!dual) {
    GeneratorStates states(log_.generators());
    try {
      for (const c10::Scalar& scalar : scalars) inputs.push_back(c10::scalar_to_tensor(scalar));
      if (auto outputs = graph_->impl().run_typed(inputs)) return std::move(*outputs);
      inputs.resize(inputs.size() - scalars.size());
    } catch (const KernelFailed&) {
      states.restore();  // the ops themselves say what is wrong
      inputs.resize(inputs.size() - scalars.size());
    } catch (...) {
      states.restore();
      throw;
    }
  }
  return log_.run(std::move(inputs), scalars);
}

bool GraphProgram::fails_cleanly() const {
  // A hook on saved tensors counts its calls; that of a checkpoint throws when it has enough.
  if (at::SavedTensorDefaultHooks::get_hooks()) return false;
  return graph_ || training_ || log_.fails_cleanly();
}

std::string GraphProgram::str() const {
  if (graph_) return graph_->str();
  if (training_) return training_->str();
  std::string text = log_.str();
  if (!refusal_.empty()) text = "# op by op: " + refusal_ + "\n" + text;
  return text;
}

}  // namespace smelt
