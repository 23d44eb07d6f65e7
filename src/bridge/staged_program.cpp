#include "bridge/staged_program.h"

#include <algorithm>
#include <unordered_map>

#include "bridge/autograd/generator_states.h"
#include "diagnostics/counters.h"

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

}  // namespace

StagedProgram::StagedProgram(const OpLog& log, const CallLog& plain, const LogProgram& program,
                             const LogProgram::Interface& interface, const StageStarts& starts,
                             WantedProgram want, const CompileOptions& options)
    : TracedProgram(program) {
  const std::vector<size_t>& begins = starts.positions;
  std::unordered_map<LogValue, size_t> place;
  for (LogValue input : interface.inputs) place.emplace(input, places_++);
  Planner planner(plain, log_.live(), interface);
  CompileOptions unfrozen = options;
  unfrozen.frozen.clear();
  const WantedProgram kernels = want == WantedProgram::interpreted ? want : WantedProgram::fastest;
  for (size_t s = 0; s <= begins.size(); ++s) {
    const Plan plan = planner.next(s == 0 ? 0 : begins[s - 1],
                                   s < begins.size() ? begins[s] : log.items().size());
    const bool is_called = std::ranges::find(starts.called, plan.first) != starts.called.end();
    const std::unique_ptr<const OpLog> part = log.part(plan.first, plan.last, plan.given);
    Stage stage;
    stage.first = plan.first;
    stage.program = choose_program(
        *part,
        LogProgram::Interface{plan.inputs,
                              plan.outputs,
                              interface.scalars,
                              interface.examples,
                              s == 0 ? interface.numbers : std::span<const NumberStep>(),
                              {}},
        is_called ? WantedProgram::op_by_op : kernels, unfrozen, /*is_stage=*/true);
    if (log.items()[plan.first].recomputed > 0 && stage.program->is_left_to_autograd())
      throw Error("a checkpoint can't be compiled: " + stage.program->refusal());
    for (LogValue value : plan.inputs) stage.inputs.push_back(place.at(value));
    for (LogValue value : plan.released) stage.last.push_back(place.at(value));
    for (LogValue value : plan.outputs) {
      place.emplace(value, places_);
      stage.outputs.push_back(places_++);
    }
    for (const at::Generator& generator : stage.program->log().generators())
      if (std::ranges::find(generators_, generator) == generators_.end())
        generators_.push_back(generator);
    for (size_t i = plan.first; i < plan.last; ++i) {
      stage.writes = stage.writes || log.changes_input(log.items()[i]);
      stage.has_effects = stage.has_effects || log.items()[i].has_effects;
    }
    writes_early_ = writes_early_ || (s < begins.size() && stage.writes);
    stages_.push_back(std::move(stage));
  }
  for (LogValue output : interface.outputs)
    outputs_.push_back(output < 0 ? -1 : static_cast<int32_t>(place.at(output)));
  count(Counter::graphs, -static_cast<int64_t>(begins.size()));  // it is one
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
  for (const Stage& stage : stages_) {
    has_effects = has_effects || stage.has_effects;
    std::vector<at::Tensor> arguments;
    arguments.reserve(stage.inputs.size());
    for (size_t input : stage.inputs) arguments.push_back(places[input]);
    for (size_t input : stage.last) places[input].reset();
    RunOutcome outcome = stage.program->attempt(std::move(arguments), scalars, on_failure);
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
    has_changed = has_changed || stage.writes || stage.program->is_watched();
  }
  return RunOutcome::done(outputs_in(places), has_changed || has_effects);
}

bool StagedProgram::leaves_nothing_behind() const {
  return !writes_early_ && stages_.back().program->fails_cleanly();
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
