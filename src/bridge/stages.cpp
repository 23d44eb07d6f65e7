#include "bridge/stages.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <unordered_map>

#include "base/counters.h"
#include "bridge/generator_states.h"
#include "bridge/graph_program.h"
#include "capture/dispatch/grad_ops.h"

namespace smelt {
namespace {

template <typename Visit>
void each_argument(const LogItem& item, const Visit& visit) {
  for (const LogSlot& slot : item.slots)
    for (LogValue value : slot.values)
      if (value >= 0) visit(value);
}

bool is_tracked_result(const OpLog& log, LogValue value) {
  return value >= 0 && log.values()[value].kind == LoggedTensor::Kind::result &&
         log.values()[value].requires_grad;
}

// Positions of which one has to be a stage's start: behind the op that makes an output what it is,
// up to the first that makes something of it on the way to another output.
struct Interval {
  size_t first, last;
};

class DependentOutputs {
 public:
  DependentOutputs(const OpLog& log, std::span<const LogValue> outputs) : log_(log) {
    for (LogValue output : outputs)
      if (is_tracked_result(log, output) && log.tensor(output).defined())
        tracked_.push_back(output);
    find_entangled();
  }

  std::vector<Interval> intervals() const {
    std::vector<Interval> found;
    if (tracked_.size() < 2) return found;
    for (LogValue output : tracked_) {
      const size_t ready = ready_at(output);
      if (const std::optional<size_t> reader = first_reader(output, ready))
        found.push_back({ready, *reader});
    }
    for (size_t item : entangled_) {
      if (item > 0) found.push_back({item, item});
      if (item + 1 < log_.items().size()) found.push_back({item + 1, item + 1});
    }
    std::ranges::sort(found, {}, &Interval::last);
    return found;
  }

  // Ops that give two outputs of which one is computed from the other.
  const std::vector<size_t>& entangled() const { return entangled_; }

 private:
  void find_entangled() {
    for (LogValue output : tracked_) {
      const at::Tensor tensor = log_.tensor(output);
      const size_t item = log_.values()[output].item;
      const auto is_computed_from_it = [&](LogValue other) {
        if (other == output || log_.values()[other].item != item) return false;
        if (log_.tensor(other).grad_fn() == tensor.grad_fn()) return false;
        const std::vector<NodePtr> nodes = reach_of({log_.tensor(other)}).nodes;
        return std::ranges::find(nodes, tensor.grad_fn()) != nodes.end();
      };
      if (std::ranges::any_of(tracked_, is_computed_from_it)) entangled_.push_back(item);
    }
  }

  size_t ready_at(LogValue output) const {
    const LoggedTensor& known = log_.values()[output];
    size_t ready = known.item + 1;
    for (size_t i = ready; i < log_.items().size(); ++i)
      for (LogValue written : log_.items()[i].written)
        if (log_.values()[written].memory == known.memory) ready = i + 1;
    return ready;
  }

  // Of those that another output is computed from.
  std::optional<size_t> first_reader(LogValue output, size_t ready) const {
    std::vector<bool> reached(log_.values().size());
    reached[output] = true;
    // Behind a change, views that were made before it are computed from what was changed.
    const LoggedTensor& known = log_.values()[output];
    if (ready > known.item + 1)
      for (size_t other = 0; other < reached.size(); ++other)
        if (log_.values()[other].memory == known.memory && log_.values()[other].item < ready)
          reached[other] = true;
    std::optional<size_t> reader;
    for (size_t i = ready; i < log_.items().size(); ++i) {
      const LogItem& item = log_.items()[i];
      if (!log_.ambients()[item.ambient].grad) continue;
      bool reads = false;
      each_argument(item, [&](LogValue value) { reads = reads || reached[value]; });
      if (!reads) continue;
      bool leads_on = false;
      const auto reach = [&](LogValue value) {
        if (!is_tracked_result(log_, value)) return;
        reached[value] = leads_on = true;
      };
      std::ranges::for_each(item.results, reach);
      std::ranges::for_each(item.written, reach);
      if (leads_on && !reader) reader = i;
    }
    const bool is_needed = std::ranges::any_of(
        tracked_, [&](LogValue other) { return other != output && reached[other]; });
    return is_needed ? reader : std::nullopt;
  }

  const OpLog& log_;
  std::vector<LogValue> tracked_;
  std::vector<size_t> entangled_;  // items
};

// By value: the first op that does not come before it and the last one that reads it.
class Lifetimes {
 public:
  Lifetimes(const OpLog& log, const std::vector<bool>& live)
      : log_(log), last_read_(log.values().size(), 0), last_write_(log.values().size(), 0) {
    for (size_t i = 0; i < log.items().size(); ++i) {
      if (!live[i]) continue;
      each_argument(log.items()[i], [&](LogValue value) { last_read_[value] = i; });
      for (LogValue value : log.items()[i].written) last_write_[value] = i;
    }
  }

  bool is_read_behind(LogValue value, size_t position) const {
    return last_read_[value] >= position;
  }

  // What it takes to start a stage there: tensors handed over which the stages would rather not
  // have, and bytes.
  struct Cost {
    size_t trouble = 0;
    int64_t bytes = 0;
    auto operator<=>(const Cost&) const = default;
  };
  std::optional<Cost> cost(size_t position) const {
    Cost cost;
    std::vector<int32_t> memories;
    for (size_t id = 0; id < log_.values().size(); ++id) {
      const LoggedTensor& value = log_.values()[id];
      const auto known = static_cast<LogValue>(id);
      if (value.kind != LoggedTensor::Kind::result || value.inner || value.item >= position ||
          !is_read_behind(known, position))
        continue;
      if (value.dynamic || value.strides.size() != value.sizes.size()) return std::nullopt;
      const bool shares = std::ranges::find(memories, value.memory) != memories.end();
      if (shares || last_write_[known] >= position) ++cost.trouble;
      memories.push_back(value.memory);
      cost.bytes +=
          std::accumulate(value.sizes.begin(), value.sizes.end(),
                          static_cast<int64_t>(c10::elementSize(value.dtype)), std::multiplies<>());
    }
    return cost;
  }

 private:
  const OpLog& log_;
  std::vector<size_t> last_read_, last_write_;
};

// Of a long way some are looked at.
std::optional<size_t> cheapest(const Lifetimes& lifetimes, Interval interval) {
  constexpr size_t kLooks = 64;
  std::optional<size_t> best;
  Lifetimes::Cost least;
  const size_t step = (interval.last - interval.first) / kLooks + 1;
  for (size_t position = interval.first; position <= interval.last; position += step) {
    const std::optional<Lifetimes::Cost> cost = lifetimes.cost(position);
    if (!cost || (best && !(*cost < least))) continue;
    best = position;
    least = *cost;
  }
  return best;
}

// Each stage would get one of its own.
bool writes_constant(const OpLog& log) {
  std::vector<int32_t> memories;
  for (const LoggedTensor& value : log.values())
    if (value.kind == LoggedTensor::Kind::constant) memories.push_back(value.memory);
  return std::ranges::any_of(log.items(), [&](const LogItem& item) {
    return std::ranges::any_of(item.written, [&](LogValue value) {
      return std::ranges::find(memories, log.values()[value].memory) != memories.end();
    });
  });
}

bool writes_input(const OpLog& log, size_t first, size_t last) {
  const auto writes = [&](const LogItem& item) {
    return std::ranges::any_of(item.written, [&](LogValue value) {
      return log.is_input_memory(log.values()[value].memory);
    });
  };
  return std::any_of(log.items().begin() + first, log.items().begin() + last, writes);
}

}  // namespace

StageStarts find_stages(const OpLog& log, const std::vector<bool>& live,
                        std::span<const LogValue> outputs) {
  StageStarts starts;
  const DependentOutputs dependent(log, outputs);
  const std::vector<Interval> intervals = dependent.intervals();
  starts.called = dependent.entangled();
  if (starts.called.empty() && intervals.empty()) return starts;
  if (writes_constant(log)) {
    starts.possible = Decision::forbid(
        "outputs are computed from each other, and a constant is "
        "changed");
    return starts;
  }
  const Lifetimes lifetimes(log, live);
  // In the order of their ends: one start serves all that begin before the first end.
  for (size_t i = 0; i < intervals.size();) {
    Interval shared = intervals[i];
    size_t next = i + 1;
    for (; next < intervals.size() && intervals[next].first <= shared.last; ++next)
      shared.first = std::max(shared.first, intervals[next].first);
    const std::optional<size_t> start = cheapest(lifetimes, shared);
    if (!start) {
      starts.possible = Decision::forbid(
          "outputs are computed from each other, and of shapes that "
          "depend on contents");
      return starts;
    }
    starts.positions.push_back(*start);
    i = next;
  }
  return starts;
}

StagedProgram::StagedProgram(const OpLog& log, const std::vector<bool>& live,
                             const LogProgram::Interface& interface, const StageStarts& starts,
                             bool interpreted, const CompileOptions& options) {
  const std::vector<size_t>& begins = starts.positions;
  std::unordered_map<LogValue, size_t> place;
  for (LogValue input : interface.inputs) place.emplace(input, places_++);
  const Lifetimes lifetimes(log, live);
  const auto is_output = [&](LogValue value) {
    return std::ranges::find(interface.outputs, value) != interface.outputs.end();
  };
  const auto is_given = [&](LogValue value) {
    return log.values()[value].kind != LoggedTensor::Kind::constant;
  };
  CompileOptions unfrozen = options;
  unfrozen.frozen.clear();
  for (size_t s = 0; s <= begins.size(); ++s) {
    const size_t first = s == 0 ? 0 : begins[s - 1];
    const size_t last = s < begins.size() ? begins[s] : log.items().size();
    std::vector<LogValue> inputs, given, outputs;
    const auto take = [&](LogValue value) {
      const auto known = place.find(value);
      if (known == place.end() || std::ranges::find(inputs, value) != inputs.end()) return;
      inputs.push_back(value);
      if (log.values()[value].kind == LoggedTensor::Kind::result) given.push_back(value);
    };
    for (size_t i = first; i < last; ++i)
      if (live[i]) each_argument(log.items()[i], take);
    const auto make = [&](LogValue value) {
      if (value < 0 || place.contains(value) || std::ranges::find(outputs, value) != outputs.end())
        return;
      if (is_output(value) || (is_given(value) && lifetimes.is_read_behind(value, last)))
        outputs.push_back(value);
    };
    for (size_t i = first; i < last; ++i) std::ranges::for_each(log.items()[i].results, make);
    for (LogValue output : interface.outputs)
      if (s == 0 && output >= 0 && !is_given(output)) make(output);

    Stage stage;
    const std::unique_ptr<const OpLog> part = log.part(first, last, given);
    stage.program = std::make_unique<const GraphProgram>(
        *part,
        LogProgram::Interface{
            inputs, outputs, interface.scalars, interface.examples, interface.numbers, {}},
        std::ranges::find(starts.called, first) != starts.called.end() ? GraphProgram::Want::log
        : interpreted ? GraphProgram::Want::interpreted
                      : GraphProgram::Want::fastest,
        unfrozen,
        /*is_stage=*/true);
    for (LogValue value : inputs) {
      stage.inputs.push_back(place.at(value));
      if (!is_output(value) && !lifetimes.is_read_behind(value, last))
        stage.last.push_back(place.at(value));
    }
    for (LogValue value : outputs) {
      place.emplace(value, places_);
      stage.outputs.push_back(places_++);
    }
    for (const at::Generator& generator : stage.program->log().generators())
      if (std::ranges::find(generators_, generator) == generators_.end())
        generators_.push_back(generator);
    writes_early_ = writes_early_ || (s < begins.size() && writes_input(log, first, last));
    stages_.push_back(std::move(stage));
  }
  for (LogValue output : interface.outputs)
    outputs_.push_back(output < 0 ? -1 : static_cast<int32_t>(place.at(output)));
  count(Counter::graphs, -static_cast<int64_t>(begins.size()));  // it is one
}

StagedProgram::~StagedProgram() = default;

std::vector<at::Tensor> StagedProgram::run(std::vector<at::Tensor> inputs,
                                           std::span<const c10::Scalar> scalars) const {
  std::vector<at::Tensor> places = std::move(inputs);
  places.resize(places_);
  GeneratorStates states(generators_);
  try {
    for (const Stage& stage : stages_) {
      std::vector<at::Tensor> arguments;
      arguments.reserve(stage.inputs.size());
      for (size_t input : stage.inputs) arguments.push_back(places[input]);
      for (size_t input : stage.last) places[input].reset();
      std::vector<at::Tensor> made = stage.program->run(std::move(arguments), scalars);
      for (size_t i = 0; i < stage.outputs.size(); ++i)
        places[stage.outputs[i]] = std::move(made[i]);
    }
  } catch (...) {
    states.restore();
    throw;
  }
  std::vector<at::Tensor> outputs;
  outputs.reserve(outputs_.size());
  for (int32_t output : outputs_) outputs.push_back(output < 0 ? at::Tensor() : places[output]);
  return outputs;
}

bool StagedProgram::fails_cleanly() const {
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
