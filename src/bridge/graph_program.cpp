#include "bridge/graph_program.h"

#include <ATen/SavedTensorHooks.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <unordered_set>

#include "base/counters.h"
#include "bridge/consumed_node.h"
#include "bridge/generator_states.h"
#include "bridge/linked_program.h"
#include "bridge/preparation.h"
#include "bridge/record_joint.h"
#include "bridge/recorded_graph.h"
#include "bridge/tracked_outputs.h"
#include "bridge/written_versions.h"
#include "capture/dispatch/convert.h"
#include "capture/dispatch/grad_ops.h"
#include "capture/dispatch/plain_log.h"
#include "log/trainability.h"
#include "log/writes.h"

namespace smelt {
namespace {

// What is copied into tensors of the caller is few elements: more costs more than an op. Beside
// what a CUDA graph saves, a copy on the device is little.
constexpr int64_t kFewElements = 4096;
constexpr int64_t kFewOnCuda = 1 << 20;

int64_t few_elements(const CompileOptions& options, const OpLog& log) {
  if (options.cuda_graphs != GraphUse::always) return kFewElements;
  for (const LoggedTensor& value : log.values())
    if (value.kind == LoggedTensor::Kind::input && value.device.is_cuda()) return kFewOnCuda;
  return kFewElements;
}

// Which of the two to run. With generated kernels the graph. They store what is written to tensors
// of the caller in place; where that can't be done it is computed into new memory and copied, which
// loses against the ops as they are.
//
// Without, both call PyTorch's kernels one by one. A step of a graph
// costs about as much as an op of a log. Where PyTorch composes an op of others, the graph has
// several steps for it, but the log goes through those too, with autograd's part on top; and passes
// remove what is computed twice. Microseconds per run on small tensors, log and graph, on a busy
// machine where less than a tenth means nothing: 30 additions 23, 22; 30 relus 20, 21; six linear
// layers with relu 18, 15; three einsums 24, 4.5. In-place code is the exception (37, 39 for 30
// ops, and more on large tensors).
Decision graph_is_faster(const OpLog& log, const CallLog& plain, const LogProgram& program,
                         int64_t few) {
  const bool kernels = !native_backends().empty();
  if (!program.writes()) return Decision::allow();
  const bool outside = std::ranges::any_of(
      log.items(), [&](const LogItem& item) { return log.changes_input(item); });
  if (!kernels) return Decision::forbid("in-place ops are fastest as they are");
  return !outside || writes_whole_tensors(plain, few)
             ? Decision::allow()
             : Decision::forbid("parts of tensors are changed in place");
}

bool makes_native_kernels(const CompileOptions& options) {
  return std::ranges::any_of(options.schedule.backends,
                             [](const Backend* backend) { return backend->is_native(); });
}

// Likewise, when it is known what is copied.
Decision graph_is_faster(const Program& program, int64_t few) {
  std::unordered_set<Register> stored;
  for (const Step& step : program.steps) stored.insert(step.into.begin(), step.into.end());
  for (const Step& step : program.steps) {
    if (step.op != "smelt::write" || stored.contains(step.args[0].get<Ref>().id)) continue;
    if (step.types[0].numel().as_known().value_or(few + 1) > few)
      return Decision::forbid("what it changes in place would be copied");
  }
  return Decision::allow();
}

// Is there an output that a backward pass may start from?
bool leaves_graph(const OpLog& log, std::span<const LogValue> outputs) {
  bool tracked = false;
  for (LogValue output : outputs) {
    if (!log.is_tracked(output)) continue;
    tracked = true;
    if (const at::Tensor tensor = log.tensor(output); tensor.defined() && !tensor.grad_fn())
      return false;
  }
  return tracked;
}

bool has_hooks(const OpLog& log, std::span<const LogValue> inputs) {
  return std::any_of(inputs.begin(), inputs.end(), [&](LogValue input) {
    const at::Tensor tensor = log.tensor(input);
    return tensor.defined() && tensor.requires_grad() &&
           (!torch::autograd::impl::hooks(tensor).empty() ||
            torch::autograd::impl::post_acc_grad_hooks(tensor));
  });
}

// Who makes kernels for such a program.
std::vector<const Backend*> backends_of(GraphProgram::Want want) {
  if (want == GraphProgram::Want::interpreted) return find_backends("interpret").value();
  if (want == GraphProgram::Want::fastest) return native_backends();
  return {};
}

// A program without generated kernels is op by op what the log is, with more around it.
Decision can_train(const OpLog& log, const CallLog& plain, std::span<const LogValue> inputs,
                   std::span<const LogValue> outputs, GraphProgram::Want want) {
  const std::vector<const Backend*> backends = backends_of(want);
  if (backends.empty()) return Decision::forbid("its results take part in autograd");
  for (const LogValue input : inputs)
    if (const c10::Device device = log.values()[input].device;
        !backend_for(backends, to_device(device)))
      return Decision::forbid("its results take part in autograd, and no kernels are made for " +
                              device.str());
  return smelt::can_train(plain, inputs, outputs);
}

// The gradients that a program drops before anything else, to come back to if its run is none
// because a guess was wrong.
class DroppedGradients {
 public:
  DroppedGradients(const LogProgram& log, const std::vector<at::Tensor>& inputs) {
    for (size_t i : log.cleared_first()) {
      if (log.expects()) dropped_.emplace_back(inputs[i], inputs[i].grad());
      inputs[i].mutable_grad().reset();
    }
  }
  void restore() {
    for (const auto& [owner, grad] : dropped_) owner.mutable_grad() = grad;
  }

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> dropped_;
};

bool share_memory(const OpLog& log, std::span<const LogValue> outputs) {
  std::vector<int32_t> seen;
  for (LogValue output : outputs) {
    if (output < 0 || log.values()[output].kind == LoggedTensor::Kind::input) continue;
    const int32_t memory = log.values()[output].memory;
    if (std::find(seen.begin(), seen.end(), memory) != seen.end()) return true;
    seen.push_back(memory);
  }
  return false;
}

// Without autograd: nothing that a stage before the last would have to take back.
bool can_be_parted(const LogProgram& log, bool gives_no_numbers) {
  return !log.writes() && !log.has_grads() && gives_no_numbers && log.computes_without_numbers();
}

// Is an output changed in place behind its retain_grad()? Which gradient it keeps then is left to
// PyTorch.
bool changes_retained(const OpLog& log, std::span<const LogValue> outputs) {
  std::vector<int32_t> retained;  // memories
  for (const LogItem& item : log.items()) {
    for (LogValue written : item.written)
      if (std::ranges::find(retained, log.values()[written].memory) != retained.end()) return true;
    if (item.op != &retain_grad_op()) continue;
    each_argument(item, [&](LogValue value) {
      if (std::ranges::find(outputs, value) != outputs.end())
        retained.push_back(log.values()[value].memory);
    });
  }
  return false;
}

// Of few ops around those that no graph takes no stage is worth it.
Decision is_worth_parting(const LogProgram& log, const std::vector<CalledRange>& called) {
  constexpr size_t kFewOps = 4;
  size_t inside = 0, all = 0;
  for (size_t i = 0; i < log.live().size(); ++i) {
    if (!log.live()[i]) continue;
    ++all;
    inside += std::ranges::any_of(
        called, [i](const CalledRange& range) { return range.first <= i && i < range.end; });
  }
  if (all - inside >= kFewOps) return Decision::allow();
  return Decision::forbid("it calls autograd or Python code, or has shapes that contents decide");
}

bool has_effects(const OpLog& log) {
  return std::ranges::any_of(log.items(), &LogItem::has_effects);
}

// By requires_grad_() where no op has a gradient: a graph of such ops would not know.
bool gives_leaf(const OpLog& log, std::span<const LogValue> outputs) {
  return std::ranges::any_of(outputs, [&](LogValue output) { return log.is_tracked(output); });
}

}  // namespace

GraphProgram::GraphProgram(const OpLog& log, const LogProgram::Interface& interface, Want want,
                           const CompileOptions& options, bool is_stage)
    : log_(log, interface) {
  if (log_.ops() == 0) return;
  for (size_t i = 0; i < interface.outputs.size(); ++i)
    if (const LogValue output = interface.outputs[i];
        output >= 0 && log.values()[output].retains_grad)
      retained_.push_back(i);
  if (want != Want::log) {
    const auto& [inputs, outputs, scalars, examples, numbers, wanted_numbers] = interface;
    // zero_grad() before a forward whose backward comes later. Hooks see in which order gradients
    // come, which one node for all of them does not keep.
    clears_only_ = log_.clears_only() && leaves_graph(log, outputs) && !has_hooks(log, inputs);
    const bool tracked = log_.uses_autograd() && (!log_.has_grads() || clears_only_);
    const CallLog plain = plain_log(log, LogDetail::types);
    std::vector<CalledRange> called;
    if (!is_stage && !log_.has_grads() && !log_.has_backward())
      called = find_called(plain, log_.live());
    Decision decision = can_record(log, inputs, !called.empty());
    if (decision && !called.empty()) decision = is_worth_parting(log_, called);
    if (decision && !called.empty() && !(wanted_numbers.empty() && log_.computes_without_numbers()))
      decision = Decision::forbid("numbers are read, and some of its ops no graph takes");
    // PyTorch must know such outputs as views of each other: by stages, if they can be made so.
    const bool shares = share_memory(log, outputs);
    const bool effects = has_effects(log);
    if (effects && called.empty())  // part of a step, or left in a stage that is no graph's
      decision = Decision::forbid("an op may have effects");
    if (shares && (is_stage || (!tracked && !can_be_parted(log_, wanted_numbers.empty()))))
      decision = Decision::forbid("two outputs share memory");
    if (decision && changes_retained(log, outputs))
      decision = Decision::forbid("an output is changed behind its retain_grad()");
    if (decision && log_.has_grads() && !tracked) decision = can_step(log, inputs, outputs);
    if (decision && !tracked && !log_.has_grads() && gives_leaf(log, outputs))
      decision = Decision::forbid("a result is a leaf that requires a gradient");
    if (decision && tracked) decision = can_train(log, plain, inputs, outputs, want);
    if (decision && tracked && !(wanted_numbers.empty() && log_.computes_without_numbers()))
      decision = Decision::forbid("its results take part in autograd, and a number is read");
    if (decision && want == Want::fastest && !tracked && !log_.has_backward())
      decision = graph_is_faster(log, plain, log_, few_elements(options, log));
    StageStarts stages;
    if (decision && (tracked || shares || !called.empty()) && !is_stage)
      stages = find_stages(plain, log_.live(), outputs, tracked_outputs(log, outputs), called);
    if (decision && !stages.possible) decision = stages.possible;
    if (decision && (!stages.positions.empty() || !stages.called.empty())) {
      try {
        staged_ = std::make_shared<const StagedProgram>(log, plain, log_.live(), interface, stages,
                                                        want == Want::interpreted, options);
        return;
      } catch (const std::exception& error) {
        decision = Decision::forbid(error.what());
      }
    }
    if (decision) {
      CompileOptions wanted = options;
      wanted.schedule.backends = backends_of(want);
      if (tracked || log_.has_grads()) wanted.frozen.clear();  // an optimizer changes weights
      if (tracked)
        train(log, inputs, outputs, wanted);
      else
        record(log, inputs, wanted);
    } else {
      refusal_ = decision.reason();
    }
  }
  for (size_t i = 0; graph_ && log_.has_grads() && i < interface.outputs.size(); ++i)
    if (log.is_tracked(interface.outputs[i])) consumed_.push_back(i);
  if (graph_ || training_) return;  // the recorder has counted it
  count(Counter::graphs);
  count(Counter::ops_fallback, static_cast<int64_t>(log_.ops()));
}

// A graph with a backward pass in it knows nothing of autograd. What it returns must not be
// something that a further pass could start from.
Decision GraphProgram::can_step(const OpLog& log, std::span<const LogValue> inputs,
                                std::span<const LogValue> outputs) const {
  if (torch::autograd::AnomalyMode::is_enabled())
    return Decision::forbid("anomaly mode names the ops of a backward pass");
  for (LogValue input : inputs)
    if (const at::Tensor tensor = log.tensor(input);
        tensor.defined() && log_.has_backward() && !tensor.is_leaf())
      return Decision::forbid("a backward pass goes on in what was computed before");
  for (LogValue output : outputs) {
    if (output < 0 || log.values()[output].kind == LoggedTensor::Kind::input) continue;
    const LoggedTensor& value = log.values()[output];
    if (log.is_input_memory(value.memory))
      return Decision::forbid("an output of a step shows an input's memory");
    if (value.retains_grad) return Decision::forbid("an output of a step has a gradient");
    // Hooks are not called to try it.
    if (value.requires_grad &&
        !(log.is_consumed(output) && (log_.has_hooks() || is_used_up(log.tensor(output)))))
      return Decision::forbid("an output requires a gradient that the step does not compute");
  }
  return Decision::allow();
}

Decision GraphProgram::can_record(const OpLog& log, std::span<const LogValue> inputs,
                                  bool calls_apart) const {
  for (const LogItem& item : log.items())
    if (item.op == &opaque_op() && !(calls_apart && item.applies_function) &&
        !(log_.has_backward() && (item.registers_hook || item.function)))
      return Decision::forbid("it calls autograd or Python code");
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
  return Decision::allow();
}

void GraphProgram::record(const OpLog& log, std::span<const LogValue> inputs,
                          const CompileOptions& options) {
  std::vector<at::Tensor> examples;
  for (LogValue input : inputs) examples.push_back(log.tensor(input));
  if (log_.has_grads()) {
    try {
      graph_ = RecordedGraph(
          std::make_shared<const RecordedGraph::Impl>(record_step(log_, examples), options));
    } catch (const std::exception& error) {
      refusal_ = error.what();
    }
    return;
  }
  const auto replay = [&](const std::vector<at::Tensor>& twins) {
    std::vector<c10::Scalar> numbers;  // further arguments
    for (const c10::Scalar& example : log_.scalar_examples())
      numbers.push_back(Recorder::current()->add_number(example));
    return log_.replay(twins, numbers);
  };
  // Changes of an inference tensor are not counted, and could not be noticed; nor could those that
  // ops make silently on another device.
  CompileOptions wanted = options;
  for (size_t i = 0; i < wanted.frozen.size(); ++i)
    if (examples[i].is_inference() || !can_watch(examples[i])) wanted.frozen[i] = false;
  try {
    graph_ = record_as(replay, examples, {}, wanted);
    if (!makes_native_kernels(options)) return;
    if (const Decision decision =
            graph_is_faster(graph_->impl().program->program(), few_elements(options, log));
        !decision) {
      graph_->impl().count_ops(-1);
      count(Counter::graphs, -1);
      graph_.reset();
      refusal_ = decision.reason();
    }
  } catch (const std::exception& error) {
    refusal_ = error.what();
  }
}

void GraphProgram::train(const OpLog& log, std::span<const LogValue> inputs,
                         std::span<const LogValue> outputs, const CompileOptions& options) {
  try {
    training_ = std::make_shared<const TrainingProgram>(log, log_, inputs, outputs, options);
  } catch (const std::exception& error) {
    refusal_ = error.what();
  }
}

std::optional<std::vector<at::Tensor>> GraphProgram::run_graph(
    std::vector<at::Tensor> inputs, std::span<const c10::Scalar> scalars) const {
  // A dual number of forward-mode autograd has the type of a plain tensor.
  for (const at::Tensor& input : inputs)
    if (input._fw_grad(0).defined()) return std::nullopt;
  GeneratorStates states(log_.generators());
  DroppedGradients dropped(log_, inputs);
  try {
    for (const c10::Scalar& scalar : scalars) inputs.push_back(number_as_tensor(scalar));
    WrittenVersions versions(inputs, log_.version_rises());
    auto outputs = graph_->impl().run_typed(inputs);
    if (outputs) versions.settle(*outputs);
    if (outputs)
      for (size_t i : consumed_) mark_consumed((*outputs)[i]);
    return outputs;
  } catch (const KernelFailed&) {
    states.restore();  // the ops themselves say what is wrong
    return std::nullopt;
  } catch (const Mispredicted&) {
    states.restore();
    if (!log_.expects()) return std::nullopt;
    dropped.restore();
    throw;  // most likely it is that
  } catch (...) {
    states.restore();
    throw;
  }
}

std::optional<std::vector<at::Tensor>> GraphProgram::run_training(
    const std::vector<at::Tensor>& inputs, std::span<const c10::Scalar> scalars) const {
  if (!clears_only_) return training_->run(inputs, scalars);
  DroppedGradients dropped(log_, inputs);
  try {
    return training_->run(inputs, scalars);
  } catch (const Mispredicted&) {
    dropped.restore();
    throw;
  }
}

std::vector<at::Tensor> GraphProgram::run(std::vector<at::Tensor> inputs,
                                          std::span<const c10::Scalar> scalars,
                                          RunFailure* failure) const {
  LinkedProgram::forget_changes();
  try {
    std::optional<std::vector<at::Tensor>> outputs = run_compiled(inputs, scalars, failure);
    if (outputs) {
      for (size_t i : retained_) (*outputs)[i].retain_grad();
      return std::move(*outputs);
    }
  } catch (...) {
    if (failure != nullptr && LinkedProgram::left_changes()) failure->clean = false;
    throw;
  }
  return log_.run(std::move(inputs), scalars, failure);
}

std::optional<std::vector<at::Tensor>> GraphProgram::run_compiled(
    const std::vector<at::Tensor>& inputs, std::span<const c10::Scalar> scalars,
    RunFailure* failure) const {
  if (staged_) return staged_->run(inputs, scalars, failure);
  std::optional<std::vector<at::Tensor>> outputs;
  if (training_) outputs = run_training(inputs, scalars);
  if (!outputs && graph_) outputs = run_graph(inputs, scalars);
  return outputs;
}

bool GraphProgram::is_watched() const {
  return log_.uses_autograd() && at::SavedTensorDefaultHooks::get_hooks().has_value();
}

bool GraphProgram::fails_cleanly() const {
  // A hook on saved tensors counts its calls; that of a checkpoint throws when it has enough.
  if (at::SavedTensorDefaultHooks::get_hooks()) return false;
  if (staged_) return staged_->fails_cleanly();
  return graph_ || training_ || log_.fails_cleanly();
}

size_t GraphProgram::ops() const {
  if (graph_) return graph_->size();
  if (training_) return training_->ops();
  return staged_ ? staged_->ops() : log_.ops();
}

std::string GraphProgram::str() const {
  if (staged_) return staged_->str();
  if (graph_) {
    const std::string launching = graph_->impl().program->launching();
    return (launching.empty() ? "" : "# " + launching + "\n") + graph_->str();
  }
  if (training_) return training_->str();
  std::string text = log_.str();
  if (!refusal_.empty()) text = "# op by op: " + refusal_ + "\n" + text;
  return text;
}

}  // namespace smelt
