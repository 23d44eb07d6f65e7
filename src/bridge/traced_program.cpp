#include "bridge/traced_program.h"

#include <ATen/SavedTensorHooks.h>

namespace smelt {

namespace {

bool has_one_twice(const std::vector<at::Tensor>& tensors) {
  for (size_t i = 0; i < tensors.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (tensors[i].defined() && tensors[i].is_same(tensors[j])) return true;
  return false;
}

}  // namespace

RunOutcome TracedProgram::attempt(std::vector<at::Tensor> inputs,
                                  std::span<const c10::Scalar> scalars,
                                  OnFailure on_failure) const {
  bool changed = false;
  if (log_.reshapes_inputs() && has_one_twice(inputs)) return RunOutcome::mispredicted();
  if (!log_.reaches_as_traced(inputs)) return RunOutcome::mispredicted();
  try {
    RunOutcome outcome = run_compiled(inputs, scalars, on_failure);
    if (outcome.kind == RunOutcome::Kind::not_for_these)
      return log_.attempt(std::move(inputs), scalars, on_failure);
    changed = outcome.changed;
    if (outcome.is_done())
      for (const size_t i : log_.retained()) outcome.outputs[i].retain_grad();
    return outcome;
  } catch (const std::exception&) {
    return RunOutcome::failed(changed);  // before anything was done, or behind all of it
  }
}

const std::string& TracedProgram::refusal() const {
  static const std::string none;
  return none;
}

bool TracedProgram::is_left_to_autograd() const {
  return kind() == Kind::op_by_op && log_.uses_autograd() && !refusal().empty();
}

bool TracedProgram::is_watched() const {
  return log_.uses_autograd() && at::SavedTensorDefaultHooks::get_hooks().has_value();
}

bool TracedProgram::fails_cleanly() const {
  // A hook on saved tensors counts its calls; that of a checkpoint throws when it has enough.
  return !at::SavedTensorDefaultHooks::get_hooks() && leaves_nothing_behind();
}

std::string OpByOpProgram::str() const {
  return (refusal_.empty() ? "" : "# op by op: " + refusal_ + "\n") + log_.str();
}

}  // namespace smelt
