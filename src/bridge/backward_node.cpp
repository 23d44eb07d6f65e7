// How gradients are computed. The rule is the compiled backward, on the tensors that it saved.
// Where gradients are to be differentiated in their turn, and where the compiled backward can't
// run, the forward is run again by its log under autograd, on the same inputs and with the same
// random numbers, and PyTorch differentiates that.
#include "bridge/backward_node.h"

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/alias.h>
#include <ATen/ops/empty_strided.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <algorithm>
#include <utility>

#include "bridge/autograd/make_node.h"

namespace smelt {

namespace impl = torch::autograd::impl;

BackwardNode::BackwardNode(std::shared_ptr<const TrainingProgram> program,
                           std::vector<at::Tensor> inputs, std::vector<int64_t> symbols,
                           GeneratorStates states)
    : program_(std::move(program)),
      inputs_(std::move(inputs)),
      symbols_(std::move(symbols)),
      states_(std::move(states)),
      used_up_(program_->tracked_.size()) {
  // A pass goes on along an edge also where no gradient comes: not into what was detached.
  for (size_t i = 0; i < program_->tracked_inputs_.size(); ++i)
    add_next_edge(program_->gets_gradient_[i]
                      ? impl::gradient_edge(inputs_[program_->tracked_inputs_[i]])
                      : torch::autograd::Edge());
}

void BackwardNode::attach(std::shared_ptr<const TrainingProgram> program,
                          std::vector<at::Tensor> inputs, std::vector<int64_t> symbols,
                          const std::vector<at::Tensor>& made, std::vector<at::Tensor> before,
                          GeneratorStates states) {
  const TrainingProgram& of = *program;
  for (size_t i = 0; i < before.size(); ++i)
    if (before[i].defined()) inputs[i] = std::move(before[i]);
  const NodePtr node = make_node<BackwardNode>(std::move(program), std::move(inputs),
                                               std::move(symbols), std::move(states));
  for (const TrainingProgram::Gradient& tracked : of.tracked_)
    torch::autograd::set_history(made[tracked.output], node);
  static_cast<BackwardNode&>(*node).save(made);
}

void BackwardNode::save(const std::vector<at::Tensor>& made) {
  saved_.reserve(program_->saved_.size());
  for (size_t i = 0; i < program_->saved_.size(); ++i) {
    const SavedValue& value = program_->saved_[i];
    if (value.from == SavedValue::From::input) {
      saved_.emplace_back(inputs_[value.index], /*is_output=*/false);
      inputs_[value.index].reset();
      continue;
    }
    const at::Tensor& tensor = made[value.index];
    for (int32_t output : value.shown_by)
      impl::set_version_counter(tensor, impl::version_counter(made[output]));
    saved_.emplace_back(tensor, program_->saved_is_tracked_[i]);
  }
  for (const at::Tensor& input : inputs_)
    versions_.push_back(input.defined() ? input._version() : 0);
}

std::vector<at::Tensor> BackwardNode::unpack(const std::vector<bool>& wanted) {
  std::vector<at::Tensor> tensors(saved_.size());
  const auto self = getptr();
  for (size_t i = 0; i < saved_.size(); ++i)
    if (wanted[i]) tensors[i] = saved_[i].unpack(self);
  return tensors;
}

std::vector<bool> BackwardNode::saved_inputs() const {
  std::vector<bool> are_inputs;
  for (const SavedValue& value : program_->saved_)
    are_inputs.push_back(value.from == SavedValue::From::input);
  return are_inputs;
}

const TrainingProgram::Backward* BackwardNode::compiled_backward(const List& gradients,
                                                                 const std::vector<bool>& used) {
  if (at::GradMode::is_enabled()) return nullptr;
  for (size_t i = 0; i < gradients.size(); ++i)
    if (const at::Tensor& gradient = gradients[i];
        gradient.defined() &&
        (gradient.layout() != c10::kStrided || gradient._fw_grad(0).defined() ||
         gradient.key_set().has(c10::DispatchKey::Python) ||
         gradient.device() != program_->tracked_[i].options.device()))
      return nullptr;
  const TrainingProgram::Backward& backward = program_->backward_for(used, [&] {
    std::vector<at::Tensor> inputs = forward_inputs(unpack(saved_inputs()));
    take_numbers(inputs);
    return inputs;
  });
  return backward.compiled ? &backward : nullptr;
}

std::vector<at::Tensor> BackwardNode::forward_inputs(const std::vector<at::Tensor>& saved) const {
  std::vector<at::Tensor> inputs = inputs_;
  for (size_t i = 0; i < saved.size(); ++i)
    if (const SavedValue& value = program_->saved_[i]; value.from == SavedValue::From::input)
      inputs[value.index] = saved[i];
  return inputs;
}

// They stand behind the tensors.
std::vector<c10::Scalar> BackwardNode::take_numbers(std::vector<at::Tensor>& inputs) const {
  const size_t tensors = inputs.size() - program_->log_.scalars().size();
  std::vector<c10::Scalar> numbers;
  for (size_t i = tensors; i < inputs.size(); ++i) numbers.push_back(inputs[i].item());
  inputs.resize(tensors);
  return numbers;
}

std::vector<bool> BackwardNode::used_up_after(const std::vector<bool>& used) const {
  std::vector<bool> after = used_up_;
  for (size_t j = 0; j < after.size(); ++j)
    for (size_t i = 0; i < after.size(); ++i)
      after[j] = after[j] || (used[i] && program_->used_up_by_[i][j]);
  return after;
}

BackwardNode::List BackwardNode::apply(List&& gradients) {
  const std::lock_guard lock(mutex_);
  std::vector<bool> used;
  used.reserve(gradients.size());
  for (const at::Tensor& gradient : gradients) used.push_back(gradient.defined());
  passed_ = used;
  for (size_t i = 0; i < used.size(); ++i)
    TORCH_CHECK(!used_up_[i] || !used[i], torch::autograd::ERR_BACKWARD_TWICE);
  // A pass from another result of a compiled function comes by although nothing leads here.
  if (std::ranges::none_of(used, std::identity())) return List(program_->tracked_inputs_.size());
  const TrainingProgram::Backward* backward = compiled_backward(gradients, used);
  program_->note_pass(at::GradMode::is_enabled());
  // Of what the log will not read, changes are still the error that they are in eager.
  std::vector<bool> wanted(saved_.size(), !backward && std::ranges::all_of(used, std::identity()));
  if (backward)
    for (size_t i : backward->saved) wanted[i] = true;
  std::vector<at::Tensor> saved = unpack(wanted);
  if (std::exchange(releases_, false) && std::ranges::all_of(used_up_after(used), std::identity()))
    for (size_t i = 0; i < saved_.size(); ++i)
      if (program_->saved_[i].from == SavedValue::From::output) saved_[i].reset_data();
  if (backward)
    if (auto found = run_compiled(*backward, gradients, std::move(saved))) return std::move(*found);
  return run_log(gradients);
}

at::Tensor BackwardNode::dense_gradient(at::Tensor gradient,
                                        const TrainingProgram::Gradient& type) const {
  std::vector<int64_t> sizes = type.sizes, strides = type.strides;
  for (size_t i = 0; i < type.varying_sizes.size(); ++i) {
    sizes[i] = type.varying_sizes[i].evaluate(symbols_);
    strides[i] = type.varying_strides[i].evaluate(symbols_);
  }
  if (gradient.defined() && gradient.strides() == strides && !gradient.is_conj() &&
      !gradient.is_neg())
    return gradient;
  at::Tensor dense = at::empty_strided(sizes, strides, type.options);
  if (gradient.defined()) dense.copy_(gradient);
  return dense;
}

std::optional<BackwardNode::List> BackwardNode::run_compiled(
    const TrainingProgram::Backward& backward, List& gradients,
    std::vector<at::Tensor> saved) const {
  std::vector<at::Tensor> arguments;
  arguments.reserve(backward.saved.size() + gradients.size());
  for (size_t i : backward.saved) {
    if (program_->saved_[i].from == SavedValue::From::input)
      arguments.push_back(saved[i]);
    else if (program_->saved_is_tracked_[i])  // its memory may become a gradient's
      arguments.push_back(saved[i].tensor_data());
    else
      arguments.push_back(std::move(saved[i]));
  }
  for (size_t i = 0; i < gradients.size(); ++i) {
    const TrainingProgram::Gradient& type = program_->tracked_[i];
    at::Tensor gradient = backward.may_fail ? gradients[i] : std::move(gradients[i]);
    arguments.push_back(dense_gradient(std::move(gradient), type));
  }
  saved.clear();
  RunOutcome outcome = backward.compiled->run_typed(std::move(arguments), symbols_);
  const bool is_left_to_log = outcome.kind == RunOutcome::Kind::not_for_these ||
                              outcome.kind == RunOutcome::Kind::mispredicted;
  if (is_left_to_log && backward.may_fail) return std::nullopt;
  return std::move(outcome).take();  // else the gradients are given away
}

BackwardNode::List BackwardNode::run_log(const List& gradients) {
  for (size_t i = 0; i < inputs_.size(); ++i)
    TORCH_CHECK(
        !inputs_[i].defined() || program_->is_scratch_[i] || inputs_[i]._version() == versions_[i],
        "one of the variables needed for gradient computation has been modified by an "
        "inplace operation: an input of a compiled function, whose backward is computed "
        "anew from its inputs here (for create_graph=True, for instance)");
  const bool create_graph = at::GradMode::is_enabled();
  std::vector<at::Tensor> inputs = forward_inputs(unpack(saved_inputs()));
  const std::vector<c10::Scalar> numbers = take_numbers(inputs);
  List wanted, outputs, seeds;
  {
    const at::AutoGradMode grad(true);
    // The gradients that the forward has dropped were others.
    for (size_t input : program_->log_.cleared_first()) inputs[input] = at::alias(inputs[input]);
    // Derivatives are those of this function alone, also where one input is computed of another.
    for (size_t input : program_->tracked_inputs_) {
      inputs[input] = at::alias(inputs[input]);
      wanted.push_back(inputs[input]);
    }
    for (size_t input : program_->written_) inputs[input] = inputs[input].clone();
    GeneratorStates now(program_->log_.generators());
    states_.restore();
    OpAmbientScope ambient(OpAmbient::current());
    ambient.enter(program_->ambient_);
    try {
      outputs = program_->log_.run(std::move(inputs), numbers);
    } catch (...) {
      now.restore();
      throw;
    }
    now.restore();
  }
  List tracked;
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i].defined()) continue;
    tracked.push_back(outputs[program_->tracked_[i].output]);
    seeds.push_back(gradients[i]);
  }
  return torch::autograd::grad(tracked, wanted, seeds, create_graph, create_graph,
                               /*allow_unused=*/true);
}

void BackwardNode::release_variables() {
  const std::lock_guard lock(mutex_);
  if (saved_.empty()) return;  // as often as one likes, as in eager
  if (!passed_.empty()) used_up_ = used_up_after(passed_);
  if (!passed_.empty() && !std::ranges::all_of(used_up_, std::identity()))
    return;  // others need it
  for (torch::autograd::SavedVariable& saved : saved_) saved.reset_data();
  inputs_.clear();
  states_.forget();
}

}  // namespace smelt
