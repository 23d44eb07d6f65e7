#include "bridge/training_program.h"

#include <ATen/EmptyTensor.h>
#include <ATen/SavedTensorHooks.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "base/log.h"
#include "bridge/backward_node.h"
#include "bridge/record_joint.h"
#include "graph/effects.h"

namespace smelt {
namespace {

Recorded part_of(const Recorded& recorded, Graph graph, size_t arguments,
                 std::vector<int32_t> returned_input) {
  return {.graph = std::move(graph),
          .captured = recorded.captured,
          .opaque = recorded.opaque,
          .returned_input = std::move(returned_input),
          .same_argument = std::vector<int32_t>(arguments, -1),
          .default_dtype = recorded.default_dtype};
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

// How a value comes about, with the numbers of what it is made of.
std::string definition(const Graph& graph, ValueId value) {
  const NodeId node = graph.values[value].node;
  return node < 0 ? graph.type(value).str() : str(graph, graph.nodes[node]);
}

}  // namespace

Decision TrainingProgram::can_train(const OpLog& log, std::span<const LogValue> inputs,
                                    std::span<const LogValue> outputs) {
  for (const OpAmbient& ambient : log.ambients())
    if (ambient.inference) return Decision::forbid("inference mode is on");
  for (LogValue input : inputs) {
    if (!log.values()[input].device.is_cpu())
      return Decision::forbid("it takes part in autograd, and not on the CPU");
    if (log.tensor(input)._fw_grad(0).defined())
      return Decision::forbid("an input is a dual number of forward-mode autograd");
  }
  for (LogValue output : outputs)
    if (output >= 0 && log.is_input_memory(log.values()[output].memory))
      return Decision::forbid("an output that may take part in autograd shows an input's memory");
  for (const LogItem& item : log.items())
    for (LogValue value : item.written)
      if (log.is_input_memory(log.values()[value].memory) && log.values()[value].requires_grad)
        return Decision::forbid("an input that requires a gradient is changed in place");
  return Decision::allow();
}

TrainingProgram::TrainingProgram(const OpLog& log, const LogProgram& program,
                                 std::span<const LogValue> inputs,
                                 std::span<const LogValue> outputs, const CompileOptions& options)
    : log_(program), ambient_(log.ambients().at(0)), options_(options), outputs_(outputs.size()) {
  std::vector<at::Tensor> examples;
  for (LogValue input : inputs) {
    if (log.values()[input].requires_grad) tracked_inputs_.push_back(examples.size());
    examples.push_back(log.tensor(input));
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i] < 0 || !log.values()[outputs[i]].requires_grad) continue;
    const LoggedTensor& output = log.values()[outputs[i]];
    at::Tensor like = at::detail::empty_strided_cpu(output.sizes, output.strides, output.dtype);
    if (!like.is_non_overlapping_and_dense())
      like = at::detail::empty_cpu(output.sizes, output.dtype);
    tracked_.push_back({i, like.sizes().vec(), like.strides().vec(), output.dtype});
  }
  Recorded recorded = record_joint(log_, examples, log_.scalar_examples(), gradient_examples(),
                                   std::vector<bool>(tracked_.size(), true));
  const size_t arguments = examples.size() + log_.scalars().size();
  SplitGraphs split =
      split_joint(recorded.graph, static_cast<int32_t>(arguments), static_cast<int32_t>(outputs_));
  if (!split.possible) throw Error(split.possible.reason());
  saved_ = split.saved;
  for (const SavedValue& saved : saved_) {
    definitions_.push_back(definition(recorded.graph, saved.value));
    saved_is_tracked_.push_back(saved.from == SavedValue::From::output &&
                                std::ranges::any_of(tracked_, [&](const Gradient& gradient) {
                                  return static_cast<int32_t>(gradient.output) == saved.index;
                                }));
  }
  written_ = written_inputs(split.forward);
  backward_text_ = split.backward.str();
  const size_t made = split.forward.outputs.size();
  forward_ = std::make_unique<const RecordedGraph::Impl>(
      part_of(recorded, std::move(split.forward), arguments, std::vector<int32_t>(made, -1)),
      options_);
  recorded.graph = {};
  uncompiled_.emplace(std::move(split), std::move(recorded));
}

std::vector<at::Tensor> TrainingProgram::gradient_examples() const {
  std::vector<at::Tensor> examples(outputs_);
  for (const Gradient& gradient : tracked_)
    examples[gradient.output] =
        at::detail::empty_strided_cpu(gradient.sizes, gradient.strides, gradient.dtype);
  return examples;
}

std::optional<std::vector<at::Tensor>> TrainingProgram::run(
    const std::vector<at::Tensor>& tensors, std::span<const c10::Scalar> scalars) const {
  if (torch::autograd::AnomalyMode::is_enabled()) return std::nullopt;  // it names ops
  // Hooks on saved tensors see, and checkpointing counts, each that eager saves.
  if (at::SavedTensorDefaultHooks::get_hooks()) return std::nullopt;
  if (at::GradMode::is_enabled() != ambient_.grad) return std::nullopt;
  for (const at::Tensor& input : tensors)
    if (input.is_inference() || input._fw_grad(0).defined()) return std::nullopt;
  std::vector<at::Tensor> inputs = tensors;
  for (const c10::Scalar& scalar : scalars) inputs.push_back(number_as_tensor(scalar));
  GeneratorStates states(log_.generators());
  std::vector<at::Tensor> before(inputs.size());
  {
    const at::NoGradGuard no_grad;
    for (size_t input : written_) before[input] = inputs[input].clone();
  }
  std::optional<std::vector<at::Tensor>> made;
  try {
    made = forward_->run_typed(inputs);
  } catch (const KernelFailed&) {
    states.restore();  // the ops themselves say what is wrong
    return std::nullopt;
  } catch (const Mispredicted&) {
    states.restore();
    return std::nullopt;
  } catch (...) {
    states.restore();
    throw;
  }
  if (!made) return std::nullopt;
  if (!tracked_.empty())
    BackwardNode::attach(shared_from_this(), inputs, *made, std::move(before), std::move(states));
  made->resize(outputs_);
  return made;
}

TrainingProgram::Backward TrainingProgram::compile_backward(SplitGraphs split,
                                                            Recorded rest) const {
  Backward backward;
  for (const SavedValue& needed : split.saved) {
    const auto saved = std::ranges::find(saved_, needed.value, &SavedValue::value);
    if (saved == saved_.end()) return {};
    backward.saved.push_back(saved - saved_.begin());
  }
  const size_t arguments = split.saved.size() + tracked_.size();
  // Arguments are inputs in their order.
  backward.compiled = std::make_unique<const RecordedGraph::Impl>(
      part_of(rest, std::move(split.backward), arguments, std::move(split.returned_argument)),
      options_);
  return backward;
}

// The forward's part of this recording is the one that was recorded before, number by number, and
// with fewer gradients the backward reads less of it.
TrainingProgram::Backward TrainingProgram::record_backward(
    const std::vector<bool>& used, const std::vector<at::Tensor>& inputs) const {
  Recorded recorded = record_joint(log_, inputs, log_.scalar_examples(), gradient_examples(), used);
  SplitGraphs split =
      split_joint(recorded.graph, static_cast<int32_t>(inputs.size() + log_.scalars().size()),
                  static_cast<int32_t>(outputs_));
  if (!split.possible) return {};
  for (const SavedValue& needed : split.saved) {
    const auto saved = std::ranges::find(saved_, needed.value, &SavedValue::value);
    if (saved == saved_.end() ||
        definitions_[saved - saved_.begin()] != definition(recorded.graph, needed.value))
      return {};
  }
  return compile_backward(std::move(split), std::move(recorded));
}

const TrainingProgram::Backward& TrainingProgram::backward_for(
    const std::vector<bool>& used, const std::function<std::vector<at::Tensor>()>& inputs) const {
  const std::lock_guard lock(mutex_);
  const auto [it, is_new] = backwards_.try_emplace(used);
  if (!is_new) return it->second;
  try {
    if (std::ranges::all_of(used, std::identity())) {
      auto [split, rest] = std::move(*uncompiled_);
      uncompiled_.reset();
      it->second = compile_backward(std::move(split), std::move(rest));
    } else {
      it->second = record_backward(used, inputs());
    }
  } catch (const std::exception& error) {
    if (log_enabled(Log::graph)) log(Log::graph, std::string("no backward: ") + error.what());
    it->second = {};
  }
  return it->second;
}

size_t TrainingProgram::ops() const { return forward_->graph.nodes.size(); }

std::string TrainingProgram::str() const {
  return "# forward\n" + forward_->graph.str() + "# backward, before its passes\n" + backward_text_;
}

}  // namespace smelt
