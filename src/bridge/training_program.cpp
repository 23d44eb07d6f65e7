#include "bridge/training_program.h"

#include <ATen/SavedTensorHooks.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/strides.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <numeric>

#include "aten/convert.h"
#include "aten/without_contents.h"
#include "background/background.h"
#include "bridge/autograd/tracked_inputs.h"
#include "bridge/autograd/written_versions.h"
#include "bridge/backward_node.h"
#include "bridge/dropped_gradients.h"
#include "bridge/evaluate.h"
#include "bridge/record_joint.h"
#include "diagnostics/log.h"
#include "graph/effects.h"
#include "graph/numbers.h"
#include "log/shared_history.h"
#include "ops/may_fail.h"
#include "passes/splitting/narrow_saved.h"

namespace smelt {
namespace {

// A pass that makes a graph of the gradients costs as much as so many compiled ones win.
constexpr int kGraphPass = 4;
constexpr int kMostGraphPasses = 5 * kGraphPass;

Recorded part_of(const Recorded& recorded, Graph graph, size_t arguments,
                 std::vector<int32_t> returned_input) {
  return {.graph = std::move(graph),
          .captured = recorded.captured,
          .opaque = recorded.opaque,
          .returned_input = std::move(returned_input),
          .same_argument = std::vector<int32_t>(arguments, -1)};
}

// Inputs that the graph changes.
std::vector<size_t> written_inputs(const Graph& graph) {
  std::vector<size_t> written;
  for (const Node& node : graph.nodes) {
    if (node.op != effects::kWrite) continue;
    for (const Input& input : graph.inputs)
      if (node.args[0] == Arg(Ref{input.value})) written.push_back(input.index);
  }
  return written;
}

// By value: do the outputs depend on it, or what a run expects? Other effects are no outputs.
std::vector<bool> values_of_outputs(const Graph& graph) {
  std::vector<bool> needed(graph.values.size());
  for (ValueId output : graph.outputs)
    if (output >= 0) needed[output] = true;
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    if (!numbers::is_check(node.op) &&
        std::ranges::none_of(node.results, [&](ValueId v) { return v >= 0 && needed[v]; }))
      continue;
    for (const Arg& arg : node.args)
      each_ref(arg, [&](Ref ref) {
        if (ref.id >= 0) needed[ref.id] = true;
      });
  }
  return needed;
}

// May a run of it end without a result?
bool may_fail(const Graph& graph) {
  return std::ranges::any_of(graph.nodes,
                             [&](const Node& node) { return may_end_run(graph, node); });
}

}  // namespace

TrainingProgram::TrainingProgram(const OpLog& log, const LogProgram& program,
                                 std::span<const LogValue> inputs,
                                 std::span<const LogValue> outputs, const CompileOptions& options,
                                 bool clears_gradients)
    : TracedProgram(program),
      clears_gradients_(clears_gradients),
      ambient_(log.ambients().at(0)),
      options_(options),
      outputs_(outputs.size()) {
  const CallLog& plain = log.plain();
  std::vector<at::Tensor> examples;
  for (LogValue input : inputs) {
    if (plain.value(input).requires_grad) tracked_inputs_.push_back(examples.size());
    examples.push_back(log.tensor(input));
  }
  keep_examples(log, inputs);
  std::vector<LogValue> tracked;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i] < 0 || !plain.value(outputs[i]).requires_grad) continue;
    tracked.push_back(outputs[i]);
    const std::optional<TensorType>& type = plain.value(outputs[i]).type;
    if (!type) throw Error("a result is of a type that no graph has");
    if (log.is_resized(outputs[i])) throw Error("a result gets other sizes in place");
    at::Tensor like = without_contents(*type);
    const at::TensorOptions options = at::dtype(like.scalar_type()).device(like.device());
    if (!like.is_non_overlapping_and_dense())
      like = without_contents(like.sizes(), c10::contiguous_strides(like.sizes()), options);
    tracked_.push_back({i, like.sizes().vec(), like.strides().vec(), options, {}, {}});
  }
  used_up_by_ = smelt::used_up_by(plain, tracked);
  std::vector<at::Tensor> results, leading;
  for (const LogValue output : tracked) results.push_back(log.tensor(output));
  for (const size_t input : tracked_inputs_) leading.push_back(examples[input]);
  arrivals_ = order_of_arrival(results, leading);
  recorded_ =
      record_joint(log_, examples, gradient_examples(), std::vector<bool>(tracked_.size(), true));
  recorded_guards_ = recorded_.graph.symbols.guards();
  find_varying_gradients(recorded_.graph);
  for (size_t i = 0; i < tracked_inputs_.size(); ++i)
    gets_gradient_.push_back(recorded_.graph.outputs.at(outputs_ + i) >= 0);
  find_groups(log, inputs, tracked);
  const size_t arguments = examples.size() + log_.scalars().size();
  parts_ = {.arguments = static_cast<int32_t>(arguments),
            .outputs = static_cast<int32_t>(outputs_),
            .recompute = std::ranges::any_of(
                plain.calls, [](const LoggedCall& call) { return call.recomputed > 0; })};
}

void TrainingProgram::compile() {
  Recorded recorded = std::move(recorded_);
  SplitGraphs split = this->split(recorded);
  if (!split.possible) throw Error(split.possible.reason());
  describe_saved(recorded.graph, split.saved);
  find_written(split.forward);
  backward_text_ = split.backward.str();
  const size_t made = split.forward.outputs.size();
  forward_ = std::make_unique<const RecordedGraph::Impl>(
      part_of(recorded, std::move(split.forward), parts_.arguments, std::vector<int32_t>(made, -1)),
      options_);
  recorded.graph = {};
  uncompiled_.emplace(std::move(split), std::move(recorded));
  if (options_.background) backward_for(std::vector<bool>(tracked_.size(), true), {});
}

// Inputs of later runs have other sizes.
void TrainingProgram::keep_examples(const OpLog& log, std::span<const LogValue> inputs) {
  const std::vector<SymbolicDims>& varying = log_.sizes().inputs;
  for (size_t i = 0; i < varying.size(); ++i) {
    const LoggedValue& known = log.plain().value(inputs[i]);
    examples_.push_back(varying[i].empty() ? at::Tensor() : without_contents(known.type.value()));
    if (examples_.back().defined()) examples_.back().set_requires_grad(known.requires_grad);
  }
}

void TrainingProgram::find_varying_gradients(const Graph& joint) {
  if (!log_.sizes().any()) return;
  const auto arguments = static_cast<int32_t>(log_.sizes().inputs.size() + log_.scalars().size());
  for (const Input& input : joint.inputs) {
    if (input.source != Source::argument || input.index < arguments) continue;
    Gradient& gradient = tracked_.at(static_cast<size_t>(input.index - arguments));
    gradient.varying_sizes = joint.type(input.value).sizes;
    gradient.varying_strides = joint.type(input.value).strides;
  }
}

void TrainingProgram::find_groups(const OpLog& log, std::span<const LogValue> inputs,
                                  std::span<const LogValue> outputs) {
  std::vector<LogValue> tracked_inputs;
  for (const size_t input : tracked_inputs_) tracked_inputs.push_back(inputs[input]);
  const std::vector<std::vector<bool>> reached = reached_by(log.plain(), outputs, tracked_inputs);
  std::map<std::vector<bool>, size_t> known;
  for (size_t output = 0; output < outputs.size(); ++output) {
    const auto [group, is_new] = known.try_emplace(reached[output], groups_.size());
    if (is_new) {
      ResultGroup& made = groups_.emplace_back();
      for (size_t input = 0; input < tracked_inputs.size(); ++input)
        if (reached[output][input]) made.inputs.push_back(input);
    }
    groups_[group->second].outputs.push_back(output);
  }
  if (groups_.size() > 1) return;
  for (ResultGroup& group : groups_) {
    group.inputs.resize(tracked_inputs.size());
    std::iota(group.inputs.begin(), group.inputs.end(), 0);
  }
}

bool TrainingProgram::is_reached(size_t input, const std::vector<bool>& outputs) const {
  return std::ranges::any_of(groups_, [&](const ResultGroup& group) {
    return std::ranges::find(group.inputs, input) != group.inputs.end() &&
           std::ranges::any_of(group.outputs, [&](size_t output) { return outputs[output]; });
  });
}

// Kernels compute simple ops: what of a compound one is worth saving is seen in its pieces.
void TrainingProgram::simplify(Recorded& recorded) const {
  PassOptions passes = options_.passes;
  passes.has_kernels = has_kernels(options_.schedule);
  passes.evaluate = [&](const Graph& in, const Node& node) {
    return evaluate_node(in, node, recorded.opaque);
  };
  Record record;
  run_passes(recorded.graph, passes, record);
  narrow_saved(recorded.graph);
}

SplitGraphs TrainingProgram::split(Recorded& recorded) {
  kept_ = kept_by_eager(recorded.graph, parts_);
  const std::vector<bool> matters = values_of_outputs(recorded.graph);
  is_scratch_.resize(parts_.arguments);
  for (const Input& input : recorded.graph.inputs)
    if (input.source == Source::argument && input.index < parts_.arguments)
      is_scratch_[input.index] = !matters[input.value];
  Graph as_recorded = recorded.graph;
  simplify(recorded);
  is_simplified_ = true;
  SplitGraphs split = split_joint(recorded.graph, parts_, kept_);
  if (split.possible) return split;
  is_simplified_ = false;
  recorded.graph = std::move(as_recorded);
  return split_joint(recorded.graph, parts_, kept_);
}

void TrainingProgram::describe_saved(const Graph& joint, const std::vector<SavedValue>& saved) {
  const std::vector<ValueName> names = value_names(joint);
  saved_ = saved;
  for (const SavedValue& value : saved_) {
    names_.push_back(names[value.value]);
    saved_is_tracked_.push_back(value.from == SavedValue::From::output &&
                                std::ranges::any_of(tracked_, [&](const Gradient& gradient) {
                                  return static_cast<int32_t>(gradient.output) == value.index;
                                }));
  }
}

void TrainingProgram::find_written(const Graph& forward) {
  written_ = written_inputs(forward);
  std::vector<bool> is_written(is_scratch_.size());
  for (size_t input : written_) {
    is_written[input] = true;
    if (!is_scratch_[input]) changed_.push_back(input);
  }
  for (size_t i = 0; i < is_scratch_.size(); ++i) is_scratch_[i] = is_scratch_[i] && is_written[i];
}

std::vector<at::Tensor> TrainingProgram::gradient_examples() const {
  std::vector<at::Tensor> examples(outputs_);
  for (const Gradient& gradient : tracked_)
    examples[gradient.output] =
        without_contents(gradient.sizes, gradient.strides, gradient.options);
  return examples;
}

void TrainingProgram::note_pass(bool makes_graph) const {
  const int before = graph_passes_.load(std::memory_order_relaxed);
  if (before >= kMostGraphPasses) return;
  const int by = makes_graph ? kGraphPass : -1;
  graph_passes_.store(std::clamp(before + by, 0, kMostGraphPasses), std::memory_order_relaxed);
}

RunOutcome TrainingProgram::run_compiled(const std::vector<at::Tensor>& inputs,
                                         std::span<const c10::Scalar> scalars, OnFailure) const {
  if (!clears_gradients_) return run_forward(inputs, scalars);
  DroppedGradients dropped(log_, inputs);
  RunOutcome outcome = run_forward(inputs, scalars);
  if (outcome.kind == RunOutcome::Kind::mispredicted) dropped.restore();
  return outcome;
}

RunOutcome TrainingProgram::run_forward(const std::vector<at::Tensor>& tensors,
                                        std::span<const c10::Scalar> scalars) const {
  if (torch::autograd::AnomalyMode::is_enabled()) return {};  // it names ops
  // Hooks on saved tensors see, and checkpointing counts, each that eager saves.
  if (at::SavedTensorDefaultHooks::get_hooks()) return {};
  if (at::GradMode::is_enabled() != ambient_.grad) return {};
  if (graph_passes_.load(std::memory_order_relaxed) >= kMostGraphPasses) return {};
  for (const at::Tensor& input : tensors)
    if (input.is_inference() || input._fw_grad(0).defined()) return {};
  std::vector<at::Tensor> inputs = tensors;
  add_numbers(*forward_, scalars, inputs);
  GeneratorStates states(log_.generators());
  std::vector<at::Tensor> before(inputs.size());
  {
    const at::NoGradGuard no_grad;
    for (size_t input : changed_) before[input] = inputs[input].clone();
  }
  WrittenVersions versions(inputs, log_.version_rises());
  std::vector<int64_t> symbols = log_.symbols(scalars);
  RunOutcome outcome = forward_->run_typed(inputs, symbols);
  if (!outcome.is_done()) {
    states.restore();
    // What the log expects is most likely what does not hold; else the ops say what is wrong.
    if (outcome.kind == RunOutcome::Kind::mispredicted && !log_.expects()) return {};
    return outcome;
  }
  try {
    versions.settle(outcome.outputs);
    if (!tracked_.empty())
      BackwardNode::attach(shared_from_this(), inputs, scalars, std::move(symbols), outcome.outputs,
                           std::move(before), std::move(states));
  } catch (const std::exception&) {
    return RunOutcome::failed(outcome.changed || !log_.generators().empty());  // numbers are drawn
  }
  outcome.outputs.resize(outputs_);
  return outcome;
}

TrainingProgram::Backward TrainingProgram::compile_backward(SplitGraphs split,
                                                            std::vector<size_t> saved,
                                                            Recorded rest) const {
  Backward backward;
  backward.saved = std::move(saved);
  const size_t arguments = split.saved.size() + tracked_.size();
  CompileOptions options = options_;
  options.release_inputs = true;
  // Arguments are inputs in their order.
  backward.compiled = std::make_unique<const RecordedGraph::Impl>(
      part_of(rest, std::move(split.backward), arguments, std::move(split.returned_argument)),
      std::move(options));
  backward.may_fail =
      may_fail(backward.compiled->graph) || !backward.compiled->graph.symbols.guards().empty();
  return backward;
}

// The default dtype, for as long as this lives.
class DefaultDtype {
 public:
  explicit DefaultDtype(DType dtype) : before_(c10::get_default_dtype()) {
    set(c10::scalarTypeToTypeMeta(to_scalar_type(dtype)));
  }
  ~DefaultDtype() { set(before_); }
  DefaultDtype(const DefaultDtype&) = delete;
  DefaultDtype& operator=(const DefaultDtype&) = delete;

 private:
  // The process has one, which other threads read: it is most often the same.
  static void set(caffe2::TypeMeta dtype) {
    if (c10::get_default_dtype() != dtype) c10::set_default_dtype(dtype);
  }

  const caffe2::TypeMeta before_;
};

// The forward's part of this recording is the one that was recorded before. With fewer gradients
// the backward needs no more of it, so that what was saved will do.
Recorded TrainingProgram::record_backward(const std::vector<bool>& used,
                                          const std::vector<at::Tensor>& inputs) const {
  const DefaultDtype as_in_forward(forward_->graph.default_float);
  std::vector<at::Tensor> examples = inputs;
  for (size_t i = 0; i < examples_.size(); ++i)
    if (examples_[i].defined()) examples[i] = examples_[i];
  return record_joint(log_, examples, gradient_examples(), used);
}

TrainingProgram::Backward TrainingProgram::split_backward(Recorded recorded) const {
  if (is_simplified_) simplify(recorded);
  const std::vector<ValueName> names = value_names(recorded.graph);
  std::vector<bool> available;
  for (const ValueName& name : names)
    available.push_back(std::ranges::find(names_, name) != names_.end());
  SplitGraphs split = split_joint(recorded.graph, parts_, kept_, available);
  if (!split.possible) return {};
  std::vector<size_t> saved;
  for (const SavedValue& needed : split.saved)
    saved.push_back(std::ranges::find(names_, names[needed.value]) - names_.begin());
  return compile_backward(std::move(split), std::move(saved), std::move(recorded));
}

bool TrainingProgram::is_too_early_for(const std::vector<bool>& used) const {
  const std::lock_guard lock(mutex_);
  return graph_passes_.load(std::memory_order_relaxed) > 0 && !backwards_.contains(used);
}

std::shared_ptr<const TrainingProgram::Backward> TrainingProgram::backward_for(
    const std::vector<bool>& used, const std::function<std::vector<at::Tensor>()>& inputs) const {
  const std::lock_guard lock(mutex_);
  const auto [it, is_new] = backwards_.try_emplace(used);
  if (!is_new) return it->second;
  auto made = std::make_shared<Backward>();
  it->second = made;
  try {
    if (std::ranges::all_of(used, std::identity())) {
      auto [split, rest] = std::move(*uncompiled_);
      uncompiled_.reset();
      std::vector<size_t> saved(split.saved.size());
      std::iota(saved.begin(), saved.end(), 0);
      *made = compile_backward(std::move(split), std::move(saved), std::move(rest));
    } else {
      Recorded recorded = record_backward(used, inputs());
      if (options_.background)
        make_later(used, std::move(recorded));
      else
        *made = split_backward(std::move(recorded));
    }
  } catch (const std::exception& error) {
    if (log_enabled(Log::graph))
      smelt::log(Log::graph, std::string("no backward: ") + error.what());
    *made = {};
  }
  return made;
}

// The log computes these gradients meanwhile.
void TrainingProgram::make_later(const std::vector<bool>& used, Recorded recorded) const {
  auto kept = std::make_shared<Recorded>(std::move(recorded));
  background::submit([weak = weak_from_this(), used, kept] {
    const auto self = weak.lock();
    if (!self) return;
    try {
      auto made = std::make_shared<const Backward>(self->split_backward(std::move(*kept)));
      const std::lock_guard lock(self->mutex_);
      self->backwards_[used] = std::move(made);
    } catch (const std::exception& error) {
      if (log_enabled(Log::graph))
        smelt::log(Log::graph, std::string("no backward: ") + error.what());
    }
  });
}

std::vector<std::string> TrainingProgram::own_sizes() const {
  std::vector<std::string> lines;
  const auto add = [&](const char* part, const std::vector<std::string>& more) {
    for (const std::string& line : more) lines.push_back(std::string(part) + ", " + line);
  };
  add("forward", forward_->own_sizes());
  const std::lock_guard lock(mutex_);
  for (const auto& [used, backward] : backwards_)
    if (backward && backward->compiled) add("backward", backward->compiled->own_sizes());
  return lines;
}

size_t TrainingProgram::ops() const { return forward_->graph.nodes.size(); }

std::string TrainingProgram::str() const {
  const auto launching = [](const RecordedGraph::Impl* graph) {
    const std::string text = graph ? graph->program->launching() : std::string();
    return text.empty() ? "\n" : ": " + text + "\n";
  };
  std::shared_ptr<const Backward> backward;
  {
    const std::lock_guard lock(mutex_);
    const auto known = backwards_.find(std::vector<bool>(tracked_.size(), true));
    if (known != backwards_.end()) backward = known->second;
  }
  return "# forward" + launching(forward_.get()) + forward_->graph.str() +
         "# backward, before its passes" +
         launching(backward ? backward->compiled.get() : nullptr) + backward_text_;
}

}  // namespace smelt
