// How the program of a log is run: op by op, for real or under a recorder.
#include <ATen/Context.h>
#include <ATen/SavedTensorHooks.h>
#include <ATen/ScalarOps.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/lift_fresh.h>
#include <c10/util/ScopeExit.h>

#include <algorithm>

#include "aten/convert.h"
#include "aten/each_tensor.h"
#include "aten/number_node.h"
#include "base/error.h"
#include "bridge/autograd/generator_states.h"
#include "bridge/followed_function.h"
#include "bridge/log_program.h"
#include "bridge/machine/linked_program.h"
#include "capture/dispatch/record_sized.h"
#include "capture/dispatch/recorder.h"
#include "diagnostics/counters.h"

namespace smelt {
namespace {

using torch::jit::Stack;

}  // namespace

LogProgram::Saved LogProgram::save(const std::vector<at::Tensor>& inputs) const {
  Saved saved{.contents = {}, .grads = {}, .versions = SavedVersions(inputs, saved_)};
  const at::NoGradGuard no_grad;
  for (size_t i : saved_) saved.contents.emplace_back(inputs[i], inputs[i].clone());
  if (!fails_cleanly_) return saved;
  for (size_t i : grad_owners_) saved.grads.emplace_back(inputs[i], inputs[i].grad());
  return saved;
}

void LogProgram::Saved::restore() {
  const at::NoGradGuard no_grad;
  for (const auto& [tensor, before] : contents) tensor.copy_(before);
  versions.restore();
  for (const auto& [tensor, grad] : grads) tensor.mutable_grad() = grad;
}

namespace {

at::Tensor tensor_of(const c10::Scalar& number) {
  return number.isSymbolic() ? Recorder::current()->wrapped(number) : number_as_tensor(number);
}

at::Tensor output_of(const c10::Scalar& number) {
  return number.isSymbolic() ? Recorder::current()->as_tensor(number)
                             : c10::scalar_to_tensor(number);
}

}  // namespace

// -- numbers; under a recorder they are numbers of the recording

c10::Scalar LogProgram::operand(State& state, const NumberStep::Operand& operand) const {
  switch (operand.from) {
    case NumberStep::Operand::From::literal: return to_scalar(operand.literal);
    case NumberStep::Operand::From::scalar: return state.scalars[operand.index];
    case NumberStep::Operand::From::number: return evaluate(state, operand.index);
  }
  return to_scalar(operand.literal);
}

// Where Python would raise an exception, Python does.
c10::Scalar LogProgram::evaluate(State& state, uint32_t number) const {
  std::optional<c10::Scalar>& value = state.numbers[number];
  if (value) return *value;
  const NumberStep& wanted = numbers_[number];
  if (wanted.item >= 0) return *(value = state.given[wanted.item]);
  const c10::Scalar a = operand(state, wanted.a), b = operand(state, wanted.b);
  if (a.isSymbolic() || b.isSymbolic())
    return *(value = Recorder::current()->compute(wanted.op, a, b));
  const std::optional<Number> result = compute(wanted.op, *plain_number(a), *plain_number(b));
  if (!result || result->index() != wanted.seen.index())
    throw Mispredicted("a number can't be computed, or is of another type than when it was traced");
  return *(value = to_scalar(*result));
}

c10::Scalar LogProgram::scalar(State& state, uint32_t index) const {
  if (index < scalars_.size()) return state.scalars[index];
  return evaluate(state, index - static_cast<uint32_t>(scalars_.size()));
}

void LogProgram::check(const Step& step, State& state) const {
  const c10::Scalar number = scalar(state, step.numbers[0].index);
  const bool truth = step.arguments[1].toBool();
  if (number.isSymbolic()) return Recorder::current()->expect(number, truth);
  if (std::get<bool>(*compute(NumberOp::truth, *plain_number(number))) != truth)
    throw Mispredicted("a value is not what the code was traced for");
}

// item(), or a size. `stack`: what the op takes.
void LogProgram::read_number(const Step& step, State& state, const at::Tensor& tensor,
                             Stack& stack) const {
  c10::Scalar& number = state.given[step.number];
  if (Recorder* recorder = Recorder::current()) {
    if (stack.size() != 1) throw Error("a size that contents decide, in a graph");
    const auto known = number_of_item_.find(step.number);
    number = recorder->item(
        tensor, step.expected ? *step.expected : to_scalar(numbers_[known->second].seen));
    if (step.expected)
      recorder->expect(recorder->compute(NumberOp::eq, number, *step.expected), true);
    return;
  }
  step.op->callBoxed(&stack);
  number = stack[0].toScalar();
  if (step.expected && plain_number(number) != plain_number(*step.expected))
    throw Mispredicted("a number that was read is not what the code was traced for");
}

// Contents have decided otherwise about the size of a result.
void LogProgram::check_sizes(const Step& step, const Stack& stack) {
  size_t next = 0;
  const auto check = [&](const at::Tensor& tensor) {
    if (next < step.sizes.size() && tensor.sizes() != step.sizes[next++])
      throw Mispredicted("the size of a result is not what the code was traced for");
  };
  for (const c10::IValue& value : stack) each_tensor(value, check);
}

// Which gradients there are depends on what the inputs were computed of, and Python code has seen
// None where there was none.
void LogProgram::check_found(const Step& step, const State& state, const Stack& stack) const {
  const std::vector<at::Tensor> gradients = stack.at(0).toTensorVector();
  for (size_t i = 0; i < step.found.size(); ++i) {
    if (gradients.at(i).defined() == step.found[i]) continue;
    constexpr const char* kReason =
        "torch.autograd.grad finds other gradients than when the code was traced";
    if (Recorder::current() || !has_changed_nothing(state)) throw Error(kReason);
    throw Mispredicted(kReason);
  }
}

// What code that PyTorch called back did.
void LogProgram::run_inner(const std::vector<Step>& steps, State& state) const {
  Stack stack;
  for (const Step& step : steps) {
    OpAmbientScope ambient(OpAmbient::current());
    ambient.enter(ambients_[step.ambient]);
    execute(step, state, stack);
  }
}

std::vector<at::Tensor> LogProgram::run_hook(const Hook& hook, State& state,
                                             const std::vector<at::Tensor>& grads) const {
  for (size_t i = 0; i < hook.grads.size(); ++i) {
    if ((hook.grads[i] >= 0) != grads.at(i).defined())
      throw Error("another gradient is there than when the code was traced");
    if (hook.grads[i] >= 0) state.registers[hook.grads[i]] = grads[i];
  }
  run_inner(hook.steps, state);
  std::vector<at::Tensor> results;
  for (const int32_t result : hook.results)
    results.push_back(result < 0 ? at::Tensor() : state.registers[result]);
  return results;
}

class LogProgram::FunctionCall final : public FollowedFunction {
 public:
  FunctionCall(const LogProgram& program, const Function& function, State& state)
      : program_(program), function_(function), state_(state) {}

  std::vector<at::Tensor> forward() override {
    program_.run_inner(function_.steps, state_);
    std::vector<at::Tensor> outputs;
    for (const int32_t output : function_.outputs) outputs.push_back(state_.registers[output]);
    return outputs;
  }

  // One for each input that is a tensor.
  std::vector<at::Tensor> backward(const std::vector<at::Tensor>& grads) override {
    const auto found = state_.backwards.find(function_.id);
    if (found == state_.backwards.end()) throw Error("a custom function that was not followed");
    std::vector<at::Tensor> results = program_.run_hook(*found->second, state_, grads);
    results.resize(std::max(results.size(), function_.inputs.size()));
    std::vector<at::Tensor> wanted;
    for (size_t i = 0; i < function_.inputs.size(); ++i)
      if (function_.inputs[i] >= 0) wanted.push_back(results[i]);
    return wanted;
  }

 private:
  const LogProgram& program_;
  const Function& function_;
  State& state_;
};

std::vector<at::Tensor> LogProgram::call_function(const Function& function, State& state) const {
  std::vector<at::Tensor> inputs;
  for (const int32_t input : function.inputs)
    if (input >= 0) inputs.push_back(state.registers[input]);
  auto call = c10::make_intrusive<FunctionCall>(*this, function, state);
  state.functions.push_back(call);
  return apply_followed(call, inputs, function.differentiable, function.materializes);
}

// Real tensors have their hooks and functions, twins get what those did.
void LogProgram::call(const Step& step, State& state, Stack& stack) const {
  if (!Recorder::current()) {
    // What fills the new tensor is no write that it counts.
    std::optional<at::AutoDispatchBelowADInplaceOrView> below;
    if (step.is_factory) below.emplace();
    return step.op->callBoxed(&stack);
  }
  if (step.function) {
    stack.assign(1, call_function(*step.function, state));
    return;
  }
  if (step.hooks.empty()) {
    Recorder* recorder = Recorder::current();
    recorder->set_known_results(step.known ? &*step.known : nullptr);
    step.op->callBoxed(&stack);
    recorder->set_known_results(nullptr);
    return;
  }
  std::vector<std::pair<at::Tensor, unsigned>> hooked;
  for (const Hook& hook : step.hooks) {
    if (hook.tensor < 0) {
      state.backwards[hook.function] = &hook;
      continue;
    }
    const at::Tensor tensor = state.registers[hook.tensor];
    const auto run = [this, &state, called = &hook](const at::Tensor& grad) -> at::Tensor {
      return run_hook(*called, state, {grad}).at(0);
    };
    hooked.emplace_back(tensor, tensor.register_hook(run));
  }
  step.op->callBoxed(&stack);
  state.backwards.clear();
  for (const auto& [tensor, place] : hooked) tensor.remove_hook(place);
}

namespace {

// Nobody but the op knows what it gives; what is behind it was compiled for this.
void check_results(const KnownResults& known, const Stack& stack) {
  size_t next = 0;
  const auto check = [&](const at::Tensor& tensor) {
    const size_t index = next++;
    const std::optional<TensorType> type =
        tensor.defined() ? std::optional(type_of(tensor)) : std::nullopt;
    const bool fits = index < known.types.size() &&
                      type.has_value() == known.types[index].has_value() &&
                      (!type || (type->dtype == known.types[index]->dtype &&
                                 type->sizes == known.types[index]->sizes &&
                                 type->strides == known.types[index]->strides));
    if (fits) return;
    throw Error(known.op.schema().name() + " gave " + (type ? type->str() : "nothing") +
                " where it gave another type for the same arguments before. If that depends on "
                "contents, say so with tags=(torch.Tag.dynamic_output_shape,)");
  };
  for (const c10::IValue& value : stack) {
    if (value.isTensor())
      check(value.toTensor());
    else if (value.isTensorList())
      for (const at::Tensor& tensor : value.toTensorVector()) check(tensor);
  }
}

}  // namespace

// From here on the run can't be given up: whatever could be a reason is found out before.
void LogProgram::begin_effects(State& state) const {
  if (state.has_effects || Recorder::current()) return;
  for (const uint32_t number : needed_numbers_) evaluate(state, number);
  state.has_effects = true;
}

// What the calls of a run take.
struct LogProgram::RunValues {
  const LogProgram& program;
  State& state;

  at::Tensor tensor(int32_t reg, bool last) {
    if (reg < 0) return {};
    return last ? std::move(state.registers[reg]) : state.registers[reg];
  }
  c10::Scalar number(uint32_t index) { return program.scalar(state, index); }
  at::Tensor number_tensor(uint32_t index) { return tensor_of(number(index)); }
};

void LogProgram::execute(const Step& step, State& state, Stack& stack) const {
  if (step.is_expectation) return check(step, state);
  if (step.registers_hook && Recorder::current()) return;  // the passes have it
  step.fill(stack, RunValues{*this, state});
  if (step.number >= 0) {
    const at::Tensor tensor = stack[0].toTensor();
    return read_number(step, state, tensor, stack);
  }
  if (!step.sizes.empty() && Recorder::current()) {
    record_sized(*step.op, step.sizes, stack);
  } else {
    if (step.has_effects) begin_effects(state);
    call(step, state, stack);
    if (!step.sizes.empty()) check_sizes(step, stack);
    if (!step.found.empty()) check_found(step, state, stack);
    if (step.has_effects && step.known && !Recorder::current()) check_results(*step.known, stack);
  }
  size_t next = 0;
  const auto store = [&](at::Tensor tensor) {
    if (next >= step.results.size())
      throw Error(step.op->schema().name() + " returned more tensors than when it was traced");
    // An op whose kernel calls others for which autocast chooses: recorded, it is one node.
    if (Recorder::current() && next < step.dtypes.size() && step.dtypes[next] && tensor.defined() &&
        tensor.scalar_type() != *step.dtypes[next])
      throw Error(step.op->schema().name() + " gives another dtype where it is recorded");
    const int32_t reg = step.results[next++];
    if (reg >= 0) state.registers[reg] = std::move(tensor);
  };
  take_results(stack, store);
}

void LogProgram::steps(State& state, OpAmbientScope* ambient) const {
  Stack stack;
  for (const Step& step : steps_) {
    state.call = step.call;
    if (ambient) ambient->enter(ambients_[step.ambient]);
    execute(step, state, stack);
  }
}

std::vector<at::Tensor> LogProgram::start(std::vector<at::Tensor> inputs, Mode mode) const {
  SMELT_CHECK(inputs.size() == inputs_.size(), "a program got another number of inputs");
  std::vector<at::Tensor> registers(registers_);
  for (size_t i = 0; i < inputs.size(); ++i) registers[inputs_[i]] = std::move(inputs[i]);
  for (const Constant& constant : constants_) {
    if (mode == Mode::replay && !constant.tensor.unsafeGetTensorImpl()->is_wrapped_number())
      registers[constant.reg] = at::lift_fresh(constant.tensor);
    else if (constant.shared)
      registers[constant.reg] = constant.tensor;
    else
      registers[constant.reg] = constant.tensor.clone();
  }
  return registers;
}

LogProgram::State LogProgram::begin(std::vector<at::Tensor> inputs,
                                    std::span<const c10::Scalar> scalars, Mode mode) const {
  State state;
  state.registers = start(std::move(inputs), mode);
  state.scalars = scalars;
  state.given.resize(given_);
  state.numbers.resize(numbers_.size());
  return state;
}

std::vector<at::Tensor> LogProgram::results(State& state) const {
  std::vector<at::Tensor> outputs;
  outputs.reserve(outputs_.size() + wanted_numbers_.size());
  for (int32_t reg : outputs_) outputs.push_back(reg < 0 ? at::Tensor() : state.registers[reg]);
  for (uint32_t number : wanted_numbers_) outputs.push_back(output_of(evaluate(state, number)));
  return outputs;
}

// Where a run has got to. A hook on saved tensors sees, and counts, what ops save: it can't be told
// that they are computed again.
bool LogProgram::has_changed_nothing(const State& state) const {
  if (state.has_effects) return false;
  if (uses_autograd_ && at::SavedTensorDefaultHooks::get_hooks()) return false;
  return fails_cleanly_ || state.call < first_change_;
}

// Inside of the error's handler.
RunOutcome LogProgram::describe_failure(const State& state) const {
  RunOutcome outcome = RunOutcome::failed(/*changed=*/true);
  outcome.position = state.call;
  for (int32_t reg : outputs_)
    outcome.outputs.push_back(reg < 0 ? at::Tensor() : state.registers[reg]);
  return outcome;
}

RunOutcome LogProgram::attempt(std::vector<at::Tensor> inputs, std::span<const c10::Scalar> scalars,
                               OnFailure on_failure) const {
  SMELT_CHECK(scalars.size() == scalars_.size(), "a program got another number of scalars");
  count(Counter::runs);
  Saved saved = save(inputs);
  State state = begin(std::move(inputs), scalars, Mode::run);
  GeneratorStates states(generators_);
  try {
    if (one_ambient_) {
      steps(state, nullptr);
    } else {
      OpAmbientScope ambient(ambients_[0]);
      steps(state, &ambient);
    }
    state.call = live_.size();  // behind all of them
    return RunOutcome::done(results(state));
  } catch (const Mispredicted&) {
    states.restore();
    saved.restore();
    return RunOutcome::mispredicted();
  } catch (const std::exception&) {
    if (on_failure == OnFailure::leave && !has_changed_nothing(state))
      return describe_failure(state);
    states.restore();
    saved.restore();
    return RunOutcome::failed(state.has_effects);
  }
}

std::vector<int64_t> LogProgram::symbols(std::span<const c10::Scalar> scalars) const {
  std::vector<int64_t> values = sizes_.symbols.hints();
  for (size_t i = 0; i < values.size(); ++i)
    if (sizes_.values[i] < scalars.size()) values[i] = scalars[sizes_.values[i]].toLong();
  return values;
}

std::vector<c10::Scalar> LogProgram::add_numbers(Recorder& recorder) const {
  std::vector<c10::Scalar> numbers;
  for (size_t i = 0; i < scalar_examples_.size(); ++i) {
    // All of them are arguments, in their order; a size is known from the symbols as well.
    const c10::Scalar number = recorder.add_number(scalar_examples_[i]);
    const bool is_size = i < sizes_.scalars.size() && sizes_.scalars[i];
    numbers.push_back(is_size ? recorder.size_as_number(*sizes_.scalars[i]) : number);
  }
  return numbers;
}

// torch.div(3, 2): nothing in it is a tensor that a recorder could follow.
void LogProgram::refuse_ops_on_numbers() const {
  std::vector<bool> is_number(registers_);
  for (const Constant& constant : constants_)
    is_number[constant.reg] = constant.tensor.unsafeGetTensorImpl()->is_wrapped_number();
  for (const Step& step : steps_) {
    bool tensors = false;
    bool numbers = std::ranges::any_of(step.numbers, &NumberUse::is_tensor);
    for (const Slot& slot : step.slots)
      for (int32_t reg : slot.registers)
        if (reg >= 0) (is_number[reg] ? numbers : tensors) = true;
    if (numbers && !tensors) throw Error(step.op->schema().name() + " on numbers alone");
  }
}

std::vector<at::Tensor> LogProgram::replay(std::vector<at::Tensor> twins,
                                           std::span<const c10::Scalar> scalars) const {
  SMELT_CHECK(scalars.size() == scalars_.size(), "a program got another number of scalars");
  refuse_ops_on_numbers();
  Recorder::current()->begin_replay();
  OpAmbientScope ambient(ambients_[0]);
  State state = begin(std::move(twins), scalars, Mode::replay);
  // What is recorded behind this can't ask for a backward pass any more.
  const auto end = c10::make_scope_exit([&] {
    for (const auto& function : state.functions) function->end();
  });
  steps(state, &ambient);
  return results(state);
}

}  // namespace smelt
