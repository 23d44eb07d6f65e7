// How gradients are computed. The rule is the compiled backward, on the tensors that it saved.
// Where gradients are to be differentiated in their turn, and where the compiled backward can't
// run, the forward is run again by its log under autograd, on the same inputs and with the same
// random numbers, and PyTorch differentiates that.
//
// Nodes share a run where its results are computed of different inputs (backward_node.h). A pass
// from two of them comes to both nodes, and what the results have in common should be computed once.
// PyTorch's engine takes the youngest node that is ready, so when it comes to the first of
// these nodes, all gradients of results that the pass will bring have been noted: whatever
// would bring a further one is younger. Where that does not hold, in a pass of several devices
// say, the second node finds that its results are not included, and computes what comes from them.
#include "bridge/forward_run.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/alias.h>
#include <ATen/ops/empty_strided.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "bridge/autograd/tracked_inputs.h"

namespace smelt {

namespace impl = torch::autograd::impl;

ForwardRun::ForwardRun(std::shared_ptr<const TrainingProgram> program,
                       std::vector<at::Tensor> inputs, std::vector<c10::Scalar> numbers,
                       std::vector<int64_t> symbols, GeneratorStates states)
    : program_(std::move(program)),
      inputs_(std::move(inputs)),
      numbers_(std::move(numbers)),
      symbols_(std::move(symbols)),
      states_(std::move(states)),
      used_up_(program_->tracked_.size()),
      visited_(program_->tracked_.size()) {}

torch::autograd::Edge ForwardRun::edge_of(size_t tracked_input) const {
  if (!program_->gets_gradient_[tracked_input]) return {};  // what was detached
  return impl::gradient_edge(inputs_[program_->tracked_inputs_[tracked_input]]);
}

const at::Tensor& ForwardRun::tracked_input(size_t tracked_input) const {
  return inputs_[program_->tracked_inputs_[tracked_input]];
}

size_t ForwardRun::arrival_of(size_t tracked_input) const {
  return program_->arrivals_[tracked_input];
}

bool ForwardRun::is_watched() const {
  return std::ranges::any_of(program_->tracked_inputs_,
                             [&](size_t input) { return is_hooked(inputs_[input]); });
}

void ForwardRun::save(const std::vector<at::Tensor>& made) {
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

std::vector<at::Tensor> ForwardRun::unpack(const std::vector<bool>& wanted, const NodePtr& node) {
  std::vector<at::Tensor> tensors(saved_.size());
  for (size_t i = 0; i < saved_.size(); ++i)
    if (wanted[i]) tensors[i] = saved_[i].unpack(node);
  return tensors;
}

std::vector<bool> ForwardRun::saved_inputs() const {
  std::vector<bool> are_inputs;
  for (const SavedValue& value : program_->saved_)
    are_inputs.push_back(value.from == SavedValue::From::input);
  return are_inputs;
}

std::shared_ptr<const TrainingProgram::Backward> ForwardRun::compiled_backward(
    const List& gradients, const std::vector<bool>& used, const NodePtr& node) {
  if (at::GradMode::is_enabled()) return nullptr;
  for (size_t i = 0; i < gradients.size(); ++i)
    if (const at::Tensor& gradient = gradients[i];
        gradient.defined() &&
        (gradient.layout() != c10::kStrided || gradient._fw_grad(0).defined() ||
         gradient.key_set().has(c10::DispatchKey::Python) ||
         gradient.device() != program_->tracked_[i].options.device()))
      return nullptr;
  if (program_->is_too_early_for(used)) return nullptr;
  std::shared_ptr<const TrainingProgram::Backward> backward = program_->backward_for(used, [&] {
    std::vector<at::Tensor> inputs = forward_inputs(unpack(saved_inputs(), node));
    drop_numbers(inputs);
    return inputs;
  });
  return backward->compiled ? backward : nullptr;
}

std::vector<at::Tensor> ForwardRun::forward_inputs(const std::vector<at::Tensor>& saved) const {
  std::vector<at::Tensor> inputs = inputs_;
  for (size_t i = 0; i < saved.size(); ++i)
    if (const SavedValue& value = program_->saved_[i]; value.from == SavedValue::From::input)
      inputs[value.index] = saved[i];
  return inputs;
}

// They stand behind the tensors, those that the graph reads.
void ForwardRun::drop_numbers(std::vector<at::Tensor>& inputs) const {
  inputs.resize(inputs.size() - program_->log_.scalars().size());
}

std::vector<bool> ForwardRun::used_up_after(const std::vector<bool>& used) const {
  std::vector<bool> after = used_up_;
  for (size_t j = 0; j < after.size(); ++j)
    for (size_t i = 0; i < after.size(); ++i)
      after[j] = after[j] || (used[i] && program_->used_up_by_[i][j]);
  return after;
}

ForwardRun::List ForwardRun::gradients(List&& of_outputs, bool releases, const NodePtr& node) {
  const std::lock_guard lock(mutex_);
  return compute(std::move(of_outputs), used_up_, releases, node);
}

ForwardRun::List ForwardRun::compute(List&& gradients, const std::vector<bool>& used_up,
                                     bool releases, const NodePtr& node) {
  std::vector<bool> used;
  used.reserve(gradients.size());
  for (const at::Tensor& gradient : gradients) used.push_back(gradient.defined());
  passed_ = used;
  for (size_t i = 0; i < used.size(); ++i) {
    TORCH_CHECK(!used_up[i] || !used[i], torch::autograd::ERR_BACKWARD_TWICE);
    visited_[i] = visited_[i] || (releases && used[i]);
  }
  // A pass from another result of a compiled function comes by although nothing leads here.
  if (std::ranges::none_of(used, std::identity())) return List(program_->tracked_inputs_.size());
  const std::shared_ptr<const TrainingProgram::Backward> backward =
      compiled_backward(gradients, used, node);
  program_->note_pass(at::GradMode::is_enabled());
  // Of what the log will not read, changes are still the error that they are in eager.
  std::vector<bool> wanted(saved_.size(), !backward && std::ranges::all_of(used, std::identity()));
  if (backward)
    for (size_t i : backward->saved) wanted[i] = true;
  std::vector<at::Tensor> saved = unpack(wanted, node);
  if (releases && is_done_with(used_up_after(used)))
    for (size_t i = 0; i < saved_.size(); ++i)
      if (program_->saved_[i].from == SavedValue::From::output) saved_[i].reset_data();
  if (backward)
    if (auto found = run_compiled(*backward, gradients, std::move(saved))) return std::move(*found);
  return run_log(gradients, node);
}

// Where several nodes share the run, a further one may be reached by the same pass.
bool ForwardRun::is_done_with(const std::vector<bool>& used_up) const {
  return std::ranges::all_of(program_->groups_.size() > 1 ? visited_ : used_up, std::identity()) &&
         std::ranges::all_of(used_up, std::identity());
}

at::Tensor ForwardRun::dense_gradient(at::Tensor gradient,
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

std::optional<ForwardRun::List> ForwardRun::run_compiled(const TrainingProgram::Backward& backward,
                                                         List& gradients,
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

ForwardRun::List ForwardRun::run_log(const List& gradients, const NodePtr& node) {
  for (size_t i = 0; i < inputs_.size(); ++i)
    TORCH_CHECK(
        !inputs_[i].defined() || program_->is_scratch_[i] || inputs_[i]._version() == versions_[i],
        "one of the variables needed for gradient computation has been modified by an "
        "inplace operation: an input of a compiled function, whose backward is computed "
        "anew from its inputs here (for create_graph=True, for instance)");
  const bool create_graph = at::GradMode::is_enabled();
  std::vector<at::Tensor> inputs = forward_inputs(unpack(saved_inputs(), node));
  drop_numbers(inputs);
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
      outputs = program_->log_.run(std::move(inputs), numbers_);
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

void ForwardRun::release() {
  const std::lock_guard lock(mutex_);
  if (!passed_.empty()) used_up_ = used_up_after(passed_);
  if (is_done_with(used_up_)) forget();  // else others need it
}

void ForwardRun::abandon(const ResultGroup& group) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || saved_.empty()) return;
  for (const size_t output : group.outputs) used_up_[output] = visited_[output] = true;
  if (is_done_with(used_up_)) forget();
}

void ForwardRun::forget() {
  for (torch::autograd::SavedVariable& saved : saved_) saved.reset_data();
  inputs_.clear();
  states_.forget();
}

ForwardRun::Pass& ForwardRun::pass(int number) {
  if (const auto known = passes_.find(number); known != passes_.end()) return known->second;
  std::erase_if(passes_, [](const auto& other) {
    return std::ranges::none_of(other.second.waiting, std::identity());
  });
  const size_t outputs = program_->tracked_.size();
  return passes_
      .emplace(number, Pass{.noted = List(outputs),
                            .found = List(program_->tracked_inputs_.size()),
                            .included = std::vector<bool>(outputs),
                            .waiting = std::vector<bool>(outputs),
                            .used_up = used_up_})
      .first->second;
}

void ForwardRun::note(int number, size_t output, const at::Tensor& gradient) {
  const std::lock_guard lock(mutex_);
  Pass& under_way = pass(number);
  under_way.noted[output] = gradient;
  under_way.waiting[output] = true;
}

ForwardRun::List ForwardRun::share(int number, const ResultGroup& group, List&& of_outputs,
                                   bool releases, const NodePtr& node) {
  const std::lock_guard lock(mutex_);
  Pass& under_way = pass(number);
  bool is_included = true;
  for (size_t i = 0; i < of_outputs.size(); ++i) {
    const size_t output = group.outputs[i];
    if (under_way.noted[output].defined() || of_outputs[i].defined())
      is_included = is_included && under_way.included[output];
  }
  of_outputs.clear();
  if (!is_included) {
    List gradients(under_way.noted.size());
    std::swap(gradients, under_way.noted);
    for (size_t i = 0; i < gradients.size(); ++i)
      under_way.included[i] = under_way.included[i] || gradients[i].defined();
    List found = compute(std::move(gradients), under_way.used_up, releases, node);
    for (size_t i = 0; i < found.size(); ++i) {
      SMELT_CHECK(!found[i].defined() || program_->is_reached(i, under_way.included),
                  "a gradient of an input that no result was computed of");
      at::Tensor& sum = under_way.found[i];
      sum = sum.defined() && found[i].defined() ? sum + found[i]
            : sum.defined()                     ? sum
                                                : std::move(found[i]);
    }
  }
  List mine;
  for (const size_t input : group.inputs) mine.push_back(std::move(under_way.found[input]));
  for (const size_t output : group.outputs) under_way.waiting[output] = false;
  return mine;
}

}  // namespace smelt
