#include "bridge/staged_program.h"

#include <algorithm>
#include <unordered_map>

#include "aten/convert.h"
#include "aten/number_node.h"
#include "aten/stand_ins.h"
#include "base/error.h"
#include "bridge/autograd/generator_states.h"
#include "bridge/autograd/tracked_inputs.h"
#include "capture/dispatch/recorder.h"
#include "diagnostics/counters.h"
#include "log/own_ops.h"

namespace smelt {
namespace {

// The items of a stage, and the values that it takes and gives.
struct Plan {
  size_t first, last;
  std::vector<LogValue> inputs, outputs;
  std::vector<LogValue> given;     // of the inputs: what stages before it give
  std::vector<LogValue> released;  // of the inputs: nobody reads them any more
};

class Planner {
 public:
  Planner(const CallLog& log, const std::vector<bool>& live, const LogProgram::Interface& interface)
      : log_(log),
        live_(live),
        lifetimes_(log, live),
        outputs_(interface.outputs),
        is_there_(log.values.size()) {
    for (LogValue input : interface.inputs) is_there_[input] = true;
  }

  Plan next(size_t first, size_t last) {
    Plan plan{first, last, {}, {}, {}, {}};
    for (size_t i = first; i < last; ++i)
      if (live_[i]) each_argument(log_.calls[i], [&](LogValue value) { take(value, plan); });
    for (size_t i = first; i < last; ++i)
      for (LogValue value : log_.calls[i].results) give(value, plan);
    for (LogValue output : outputs_)
      if (output >= 0 && is_constant(output)) give(output, plan);
    for (LogValue value : plan.outputs) is_there_[value] = true;
    return plan;
  }

 private:
  bool is_constant(LogValue value) const {
    return log_.value(value).kind == LoggedValue::Kind::constant;
  }

  void take(LogValue value, Plan& plan) const {
    if (!is_there_[value] || std::ranges::find(plan.inputs, value) != plan.inputs.end()) return;
    if (is_constant(value)) return;  // each stage has it
    plan.inputs.push_back(value);
    if (log_.value(value).kind == LoggedValue::Kind::result) plan.given.push_back(value);
    if (!is_output(value) && !lifetimes_.is_read_behind(value, plan.last))
      plan.released.push_back(value);
  }

  void give(LogValue value, Plan& plan) const {
    if (value < 0 || is_there_[value]) return;
    if (std::ranges::find(plan.outputs, value) != plan.outputs.end()) return;
    const bool is_read = !is_constant(value) && lifetimes_.is_read_behind(value, plan.last);
    if (is_output(value) || is_read) plan.outputs.push_back(value);
  }

  bool is_output(LogValue value) const {
    return std::ranges::find(outputs_, value) != outputs_.end();
  }

  const CallLog& log_;
  const std::vector<bool>& live_;
  const Lifetimes lifetimes_;
  const std::span<const LogValue> outputs_;
  std::vector<bool> is_there_;  // by value: an input, or made by a stage
};

// The numbers that a run reads on its way (NumberStep), for each stage: those that are known when it
// begins are given to it, behind the numbers that the whole program is given; others it reads and
// computes itself.
class StageNumbers {
 public:
  StageNumbers(const CallLog& log, const std::vector<bool>& live,
               const LogProgram::Interface& interface)
      : steps_(interface.numbers), given_(interface.scalars.size()) {
    for (const NumberStep& step : steps_) {
      const auto call = step.item < 0
                            ? log.calls.end()
                            : std::ranges::find(log.calls, step.item, &LoggedCall::number);
      const auto at = static_cast<size_t>(call - log.calls.begin());
      known_at_.push_back(call == log.calls.end() || !live[at] ? SIZE_MAX : at + 1);
      if (step.item >= 0) continue;
      known_at_.back() = 0;
      for (const NumberStep::Operand& operand : {step.a, step.b})
        if (operand.from == NumberStep::Operand::From::number)
          known_at_.back() = std::max(known_at_.back(), known_at_[operand.index]);
    }
  }

  struct Part {
    std::vector<ScalarId> scalars;    // behind those of the whole program
    std::vector<uint32_t> given;      // which steps these are
    std::vector<Number> examples;     // what they were
    std::vector<NumberStep> numbers;  // that the stage has itself
    std::vector<ScalarId> wanted;     // of these: what it reads
    std::vector<uint32_t> read;       // which steps those are
  };
  // Of the log's calls from `first` up to `last`.
  Part part(size_t first, size_t last) const {
    using From = NumberStep::Operand::From;
    Part part;
    std::vector<uint32_t> place(steps_.size());  // among those given, or those of its own
    for (uint32_t i = 0; i < steps_.size(); ++i) {
      if (known_at_[i] <= first) {
        place[i] = static_cast<uint32_t>(given_ + part.given.size());
        part.given.push_back(i);
        part.scalars.push_back(steps_[i].id);
        part.examples.push_back(steps_[i].seen);
      } else if (known_at_[i] <= last) {
        place[i] = static_cast<uint32_t>(part.numbers.size());
        NumberStep step = steps_[i];
        for (NumberStep::Operand* operand : {&step.a, &step.b})
          if (operand->from == From::number) {
            if (known_at_[operand->index] <= first) operand->from = From::scalar;
            operand->index = place[operand->index];
          }
        if (step.item >= 0) part.wanted.push_back(step.id);
        if (step.item >= 0) part.read.push_back(i);
        part.numbers.push_back(step);
      }
    }
    return part;
  }

 private:
  const std::span<const NumberStep> steps_;
  const size_t given_;
  std::vector<size_t> known_at_;  // by step: in front of which call; SIZE_MAX: never
};

// The sizes that vary, of what each stage takes.
class StageSizes {
 public:
  StageSizes(const CallLog& log, const LogProgram::Interface& interface)
      : log_(log), interface_(interface) {}

  // Valid until it is called again; nullptr: none vary. `scalars`: the numbers that it is given.
  const VaryingSizes* of(const std::vector<LogValue>& inputs,
                         const std::vector<ScalarId>& scalars) {
    if (interface_.sizes == nullptr) return nullptr;
    const VaryingSizes& all = *interface_.sizes;
    sizes_ = all;
    sizes_.inputs.clear();
    for (const LogValue input : inputs) sizes_.inputs.push_back(dims_of(input));
    sizes_.late.clear();
    sizes_.late_numbers.clear();
    for (size_t i = 0; i < all.late.size(); ++i) {
      const auto at = all.late[i] == 0 ? scalars.end() : std::ranges::find(scalars, all.late[i]);
      if (at != scalars.end()) sizes_.values[i] = static_cast<uint32_t>(at - scalars.begin());
    }
    for (size_t i = interface_.scalars.size(); i < scalars.size(); ++i) {
      const auto known = all.late_numbers.find(scalars[i]);
      sizes_.scalars.push_back(known == all.late_numbers.end() ? std::nullopt
                                                               : std::optional(known->second));
    }
    return &sizes_;
  }

 private:
  SymbolicDims dims_of(LogValue value) const {
    const auto at = std::ranges::find(interface_.inputs, value);
    if (at != interface_.inputs.end())
      return interface_.sizes->inputs[static_cast<size_t>(at - interface_.inputs.begin())];
    if (log_.value(value).dynamic) return {};  // only called ops take it
    const std::optional<TensorType> type =
        interface_.type_of ? interface_.type_of(value) : std::nullopt;
    if (!type) throw Error("the sizes of what a stage gives to the next are not known");
    // A graph takes its strides to follow from the sizes where they pack it densely.
    if (symbolic_strides(type->sizes, known_sizes(log_.value(value).type->strides),
                         interface_.sizes->symbols) != type->strides)
      throw Error("a stage gives a part of a tensor whose sizes vary to the next");
    SymbolicDims dims;
    for (size_t dim = 0; dim < type->sizes.size(); ++dim)
      if (!type->sizes[dim].is_known()) dims.emplace(static_cast<int>(dim), type->sizes[dim]);
    return dims;
  }

  const CallLog& log_;
  const LogProgram::Interface& interface_;
  VaryingSizes sizes_;
};

bool expects_in(const CallLog& log, size_t first, size_t last) {
  return std::any_of(log.calls.begin() + static_cast<ptrdiff_t>(first),
                     log.calls.begin() + static_cast<ptrdiff_t>(last), [](const LoggedCall& call) {
                       return call.op == own_ops::kExpect || call.sized || call.expected;
                     });
}

// Does torch.autograd.grad in a stage ask for the gradient of what a tensor of a stage before it was
// computed of? What is known of these tells the trace alone.
bool asks_behind(const OpLog& log, const Plan& plan) {
  std::vector<at::Tensor> inputs;
  bool all_there = true;
  for (const LogValue value : plan.inputs) {
    inputs.push_back(log.tensor(value));
    all_there = all_there && (inputs.back().defined() || !log.plain().value(value).requires_grad);
  }
  std::vector<size_t> asked;
  for (size_t i = plan.first; i < plan.last; ++i) {
    const LoggedCall& call = log.plain().calls[i];
    if (call.op != own_ops::kGrad) continue;
    each_tensor_of(call.args[own_ops::kLeaves], [&](LogValue value) {
      const auto at = std::ranges::find(plan.inputs, value);
      if (at != plan.inputs.end()) asked.push_back(static_cast<size_t>(at - plan.inputs.begin()));
    });
  }
  if (asked.empty()) return false;
  const ReachBehind reach = reach_behind(inputs, asked);
  return !all_there || std::ranges::find(reach.known, true) != reach.known.end();
}

}  // namespace

StagedProgram::StagedProgram(const OpLog& log, const LogProgram& program,
                             const LogProgram::Interface& interface, const StageStarts& starts,
                             WantedProgram want, const CompileOptions& options)
    : TracedProgram(program) {
  const CallLog& plain = log.plain();
  const std::vector<size_t>& begins = starts.positions;
  std::unordered_map<LogValue, size_t> place;
  for (LogValue input : interface.inputs) place.emplace(input, places_++);
  Planner planner(plain, log_.live(), interface);
  StageSizes sizes(plain, interface);
  const StageNumbers numbers(plain, log_.live(), interface);
  numbers_.assign(interface.numbers.begin(), interface.numbers.end());
  for (const ScalarId wanted : interface.wanted_numbers) {
    const auto at = std::ranges::find(numbers_, wanted, &NumberStep::id);
    wanted_numbers_.push_back(static_cast<uint32_t>(at - numbers_.begin()));
  }
  const bool counts = interface.sizes != nullptr && interface.sizes->any_late();
  CompileOptions unfrozen = options;
  unfrozen.frozen.clear();
  const WantedProgram kernels = want == WantedProgram::interpreted ? want : WantedProgram::fastest;
  for (size_t s = 0; s <= begins.size(); ++s) {
    const Plan plan = planner.next(s == 0 ? 0 : begins[s - 1],
                                   s < begins.size() ? begins[s] : plain.calls.size());
    const bool is_called = std::ranges::find(starts.called, plan.first) != starts.called.end();
    const std::unique_ptr<const OpLog> part = log.part(plan.first, plan.last, plan.given);
    Stage stage;
    stage.first = plan.first;
    StageNumbers::Part own;
    if (counts)
      own = numbers.part(plan.first, plan.last);
    else if (s == 0)  // what the log expects is all that they are for
      own.numbers.assign(interface.numbers.begin(), interface.numbers.end());
    std::vector<ScalarId> scalars(interface.scalars.begin(), interface.scalars.end());
    std::vector<Number> examples(interface.examples.begin(), interface.examples.end());
    scalars.insert(scalars.end(), own.scalars.begin(), own.scalars.end());
    examples.insert(examples.end(), own.examples.begin(), own.examples.end());
    stage.given_numbers = std::move(own.given);
    stage.read_numbers = std::move(own.read);
    stage.program = choose_program(
        *part,
        LogProgram::Interface{plan.inputs, plan.outputs, scalars, examples, own.numbers, own.wanted,
                              sizes.of(plan.inputs, scalars)},
        is_called || asks_behind(log, plan) ? WantedProgram::op_by_op : kernels, unfrozen,
        /*is_stage=*/true);
    if (plain.calls[plan.first].recomputed > 0 && stage.program->is_left_to_autograd())
      throw Error("a checkpoint can't be compiled: " + stage.program->refusal());
    for (LogValue value : plan.inputs) stage.inputs.push_back(place.at(value));
    if (counts && !is_called)
      for (const LogValue value : plan.inputs)
        stage.types.push_back(std::ranges::find(plan.given, value) == plan.given.end() ||
                                      plain.value(value).dynamic
                                  ? std::nullopt
                                  : interface.type_of(value));
    for (LogValue value : plan.released) stage.last.push_back(place.at(value));
    for (LogValue value : plan.outputs) {
      place.emplace(value, places_);
      stage.outputs.push_back(places_++);
    }
    for (const at::Generator& generator : stage.program->log().generators())
      if (std::ranges::find(generators_, generator) == generators_.end())
        generators_.push_back(generator);
    for (size_t i = plan.first; i < plan.last; ++i) {
      stage.writes = stage.writes || log.changes_input(plain.calls[i]);
      stage.has_effects = stage.has_effects || plain.calls[i].has_effects;
    }
    // A run may turn out to be none as long as something is expected.
    if (counts && expects_in(plain, plan.first, plan.last) &&
        (writes_early_ || std::ranges::any_of(stages_, &Stage::has_effects)))
      throw Error("sizes that contents decide are read behind a change");
    writes_early_ = writes_early_ || (s < begins.size() && stage.writes);
    stages_.push_back(std::move(stage));
  }
  for (LogValue output : interface.outputs)
    outputs_.push_back(output < 0 ? -1 : static_cast<int32_t>(place.at(output)));
  count(Counter::graphs, -static_cast<int64_t>(begins.size()));  // it is one
}

std::vector<std::string> StagedProgram::own_sizes() const {
  std::vector<std::string> lines;
  for (const Stage& stage : stages_)
    for (std::string& line : stage.program->own_sizes()) lines.push_back(std::move(line));
  return lines;
}

// A number that the run has come to; nothing: Python would raise an exception.
std::optional<Number> StagedProgram::evaluate(uint32_t step, std::span<const c10::Scalar> scalars,
                                              std::vector<std::optional<Number>>& known) const {
  using From = NumberStep::Operand::From;
  if (known[step]) return known[step];
  const NumberStep& wanted = numbers_[step];
  if (wanted.item >= 0) return std::nullopt;  // no stage has read it
  const auto operand = [&](const NumberStep::Operand& of) -> std::optional<Number> {
    if (of.from == From::literal) return of.literal;
    if (of.from == From::scalar) return plain_number(scalars[of.index]);
    return evaluate(of.index, scalars, known);
  };
  const std::optional<Number> a = operand(wanted.a), b = operand(wanted.b);
  if (!a || !b) return std::nullopt;
  known[step] = compute(wanted.op, *a, *b);
  if (known[step] && known[step]->index() != wanted.seen.index()) known[step].reset();
  return known[step];
}

// What an op gives for other contents is as the shadow has it, or the stage is called op by op.
bool StagedProgram::fits(const Stage& stage, const std::vector<at::Tensor>& inputs,
                         std::span<const c10::Scalar> scalars) {
  if (stage.types.empty()) return true;
  const std::vector<int64_t> symbols = stage.program->log().symbols(scalars);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::optional<TensorType>& type = stage.types[i];
    if (!type) continue;
    if (inputs[i].dim() != type->rank()) return false;
    for (int64_t dim = 0; dim < inputs[i].dim(); ++dim) {
      const auto at = static_cast<size_t>(dim);
      if (inputs[i].size(dim) != type->sizes[at].evaluate(symbols) ||
          (inputs[i].numel() > 0 && inputs[i].stride(dim) != type->strides[at].evaluate(symbols)))
        return false;
    }
  }
  return true;
}

std::vector<at::Tensor> StagedProgram::outputs_in(const std::vector<at::Tensor>& places) const {
  std::vector<at::Tensor> outputs;
  outputs.reserve(outputs_.size());
  for (int32_t output : outputs_) outputs.push_back(output < 0 ? at::Tensor() : places[output]);
  return outputs;
}

RunOutcome StagedProgram::run_compiled(const std::vector<at::Tensor>& inputs,
                                       std::span<const c10::Scalar> scalars,
                                       OnFailure on_failure) const {
  std::vector<at::Tensor> places = inputs;
  places.resize(places_);
  GeneratorStates states(generators_);
  bool has_changed = false;  // by the stages so far
  bool has_effects = false;  // of an op that may have some, which is not called twice
  std::vector<std::optional<Number>> numbers(numbers_.size());
  for (const Stage& stage : stages_) {
    has_effects = has_effects || stage.has_effects;
    std::vector<at::Tensor> arguments;
    arguments.reserve(stage.inputs.size());
    for (size_t input : stage.inputs) arguments.push_back(places[input]);
    for (size_t input : stage.last) places[input].reset();
    std::vector<c10::Scalar> given(scalars.begin(), scalars.end());
    for (const uint32_t number : stage.given_numbers) {
      const std::optional<Number> value = evaluate(number, scalars, numbers);
      if (!value) {  // as where an operand is of another type than it was
        states.restore();
        return RunOutcome::mispredicted();
      }
      given.push_back(to_scalar(*value));
    }
    RunOutcome outcome =
        fits(stage, arguments, given)
            ? stage.program->attempt(std::move(arguments), given, on_failure)
            : stage.program->log().attempt(std::move(arguments), given, on_failure);
    if (!outcome.is_done()) {
      if (outcome.kind == RunOutcome::Kind::failed && on_failure == OnFailure::leave &&
          (has_changed || has_effects || outcome.changed)) {
        outcome.changed = true;
        outcome.position += stage.first;
        outcome.outputs = outputs_in(places);
      } else {
        states.restore();
      }
      return outcome;
    }
    for (size_t i = 0; i < stage.outputs.size(); ++i)
      places[stage.outputs[i]] = std::move(outcome.outputs[i]);
    for (size_t i = 0; i < stage.read_numbers.size(); ++i)
      numbers[stage.read_numbers[i]] =
          plain_number(outcome.outputs[stage.outputs.size() + i].item());
    has_changed = has_changed || stage.writes || stage.program->is_watched();
  }
  std::vector<at::Tensor> outputs = outputs_in(places);
  for (const uint32_t wanted : wanted_numbers_) {
    const std::optional<Number> value = evaluate(wanted, scalars, numbers);
    if (!value) {
      states.restore();
      return RunOutcome::mispredicted();
    }
    outputs.push_back(number_as_tensor(to_scalar(*value)));
  }
  return RunOutcome::done(std::move(outputs), has_changed || has_effects);
}

bool StagedProgram::leaves_nothing_behind() const {
  return !writes_early_ && stages_.back().program->fails_cleanly();
}

std::vector<Guard> StagedProgram::size_guards() const {
  std::vector<Guard> guards;
  for (const Stage& stage : stages_)
    for (Guard& guard : stage.program->size_guards())
      if (std::ranges::find(guards, guard) == guards.end()) guards.push_back(std::move(guard));
  return guards;
}

size_t StagedProgram::ops() const {
  size_t ops = 0;
  for (const Stage& stage : stages_) ops += stage.program->ops();
  return ops;
}

std::string StagedProgram::str() const {
  std::string text;
  for (size_t i = 0; i < stages_.size(); ++i)
    text += "# stage " + std::to_string(i + 1) + " of " + std::to_string(stages_.size()) + "\n" +
            stages_[i].program->str();
  return text;
}

}  // namespace smelt
