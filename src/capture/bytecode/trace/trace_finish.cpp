// How a trace becomes the data of a segment: what happened up to its last good point, less what
// nobody needs.
#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "capture/bytecode/account/needed_steps.h"
#include "capture/bytecode/nodes/number_ops.h"
#include "capture/bytecode/nodes/paths.h"
#include "capture/bytecode/nodes/program_numbers.h"
#include "capture/bytecode/trace/trace.h"

namespace smelt::bytecode {
namespace {

// Then it has more to it than what it was made from.
bool has_been_raised(PyObject* exception) {
  const auto* base = reinterpret_cast<PyBaseExceptionObject*>(exception);
  return base->traceback != nullptr || base->context != nullptr || base->cause != nullptr;
}

template <typename Visit>
void each_operand(const TraceResult& result, Visit visit) {
  for (const Step& step : result.steps)
    for (const Operand& input : step.inputs) visit(input);
  visit(result.exit.value);
  for (const Operand& slot : result.exit.slots) visit(slot);
}

}  // namespace

std::optional<TraceResult> Trace::finish_return(Value value, const Request& request) {
  check_log(true);
  if (is_in_between()) stop(BreakReason::transform, "of which something stays");
  if (!active()) return std::nullopt;
  Exit exit;
  exit.returns = true;
  Remade how;
  std::vector<Object> held;
  if (is_passing(value.object) && !PyUnicode_CheckExact(value.object)) {
    if (!describe(value.object, how, held))
      stop(BreakReason::iterator, Py_TYPE(value.object)->tp_name);
    else
      exit.value = {remake(how), {}};
  } else {
    exit.value = operand(value);
  }
  if (!active()) return std::nullopt;
  return finish(std::move(exit), position(), request);
}

std::optional<TraceResult> Trace::finish_break(const Request& request) {
  if (checkpoint_.offset < 0) return std::nullopt;
  Exit exit;
  exit.offset = checkpoint_.offset;
  exit.depth = checkpoint_.depth;
  steps_.resize(checkpoint_.position.steps);
  for (size_t i = 0; i < checkpoint_.slots.size(); ++i) {
    const Remade& how = checkpoint_.remade[i];
    exit.slots.push_back(how.type ? Operand{remake(how), {}} : checkpoint_.slots[i]);
  }
  Position position = checkpoint_.position;
  position.steps = steps_.size();
  return finish(std::move(exit), position, request);
}

void Trace::release() {
  transients_.clear();
  born_tensors_.clear();
  // What goes with them may run code, which finds the account empty.
  const Checkpoint checkpoint = std::exchange(checkpoint_, {});
  const TrackedObjects objects = std::exchange(objects_, {});
  const std::vector<Node> nodes = std::exchange(nodes_, {});
  const std::vector<Step> steps = std::exchange(steps_, {});
  const std::vector<Reading> readings = std::exchange(required_.readings, {});
  const std::vector<AbsentKey> absent = std::exchange(required_.absent, {});
  const std::vector<TypeLookup> lookups = std::exchange(required_.lookups, {});
  const std::vector<TypeState> types = std::exchange(required_.types, {});
}

std::optional<TraceResult> Trace::finish(Exit exit, const Position& position,
                                         const Request& request) {
  steps_.resize(position.steps);
  if (active()) note_end();
  if (needs_raised_exception(exit)) {
    stop(BreakReason::handler, "");
    return std::nullopt;
  }
  log_->pause();
  log_->rewind(position.log);
  required_.absent.resize(position.absent);
  required_.lookups.resize(position.lookups);
  required_.aliases.resize(position.aliases);
  required_.guards.resize(position.guards);
  std::erase_if(sizes.fixed,
                [&](const FixedSize& fixed) { return fixed.position >= position.guards; });
  required_.readings.resize(position.readings);
  required_.remembered.resize(position.remembered);
  // No call could pass such a guard, which would keep the object alive besides.
  const auto asks_for_dropped = [this](const GuardEntry& entry) {
    const Node& node = nodes_[entry.ref];
    if (!(entry.bits & kGuardSame) || node.gone || node.kind == NodeKind::constant) return false;
    const Tracked* tracked = find(node.object.get());
    return tracked != nullptr && !tracked->born && Py_REFCNT(node.object.get()) <= tracked->holds;
  };
  if (std::ranges::any_of(required_.guards, asks_for_dropped)) return std::nullopt;

  TraceResult result;
  result.exit = std::move(exit);
  result.steps = std::move(steps_);
  result.ambient = ambient_;
  result.code = code;
  result.handles = handles;
  result.catches = catches;
  for (Ref ref : slot_refs_) result.slots_set.push_back(ref != 0);
  for (const GuardEntry& entry : required_.guards) {
    Node& node = nodes_[entry.ref];
    node.guards |= entry.bits;
    if (entry.bits & kGuardTruth) node.truth = entry.truth;
    if ((entry.bits & kGuardLength) && !node.gone) {
      const Tracked* tracked = find(node.object.get());
      node.length = tracked != nullptr ? tracked->length : PyObject_Size(node.object.get());
    }
  }
  result.nodes = std::move(nodes_);
  result.absent = std::move(required_.absent);
  result.lookups = std::move(required_.lookups);
  result.types = std::move(required_.types);
  result.aliases = std::move(required_.aliases);
  result.readings = std::move(required_.readings);
  result.remembered = std::move(required_.remembered);
  drop_unneeded_steps(result);
  add_distinctness(result);
  if (!make_program(result, position, request)) return std::nullopt;
  return result;
}

// A cached call would make it without its traceback.
bool Trace::needs_raised_exception(const Exit& exit) const {
  std::vector<Ref> raised;
  objects_.each([&](PyObject* object, const Tracked& tracked) {
    if (tracked.born &&
        (tracked.transient || (PyExceptionInstance_Check(object) && has_been_raised(object))))
      raised.push_back(tracked.ref);
  });
  if (raised.empty()) return false;
  const std::vector<bool> needed = needed_steps(nodes_, steps_, exit);
  for (size_t i = 0; i < steps_.size(); ++i)
    if (needed[i] && std::ranges::count(raised, steps_[i].result) > 0) return true;
  return false;
}

void Trace::drop_unneeded_steps(TraceResult& result) const {
  const std::vector<bool> needed = needed_steps(result.nodes, result.steps, result.exit);
  std::vector<Step> kept;
  for (size_t i = 0; i < result.steps.size(); ++i)
    if (needed[i]) {
      kept.push_back(std::move(result.steps[i]));
      kept.back().switches = is_switch(kept.back());
    }
  result.steps = std::move(kept);
}

// A change of one object must not have been a change of another one that was read.
void Trace::add_distinctness(TraceResult& result) const {
  std::unordered_set<Ref> changed;
  std::unordered_map<const PyTypeObject*, DistinctGuard> by_type;
  for (const Step& step : result.steps) {
    if (!step.effect || step.inputs.empty()) continue;
    const size_t target_at = step.kind == StepKind::call && step.inputs.size() > 1 ? 1 : 0;
    const Ref target = step.inputs[target_at].ref;
    if (target == 0 || is_made(result.nodes[target])) continue;
    const Node& node = result.nodes[target];
    if (node.object && changed.insert(target).second)
      by_type[node.type()].changed.push_back(target);
  }
  const auto add_other = [&](Ref ref) {
    const Node& node = result.nodes[ref];
    const auto found = by_type.find(node.type());
    if (found == by_type.end() || changed.contains(ref)) return;
    if (node.guards != 0 || node.kind == NodeKind::slot) found->second.others.push_back(ref);
  };
  objects_.each([&](PyObject* other, const Tracked& tracked) {
    if (!tracked.born && !is_constant(other) && !tensors().is_tensor(other)) add_other(tracked.ref);
  });
  for (const Ref ref : dropped_) add_other(ref);
  for (auto& [type, guard] : by_type)
    if (guard.changed.size() + guard.others.size() > 1) result.distinct.push_back(std::move(guard));
}

bool Trace::make_program(TraceResult& result, const Position& position, const Request& request) {
  if (position.log == 0) return true;
  ProgramRequest wanted;
  wanted.settings = request.settings;
  wanted.backend_callable = request.backend_callable;
  std::unordered_map<LogValue, Ref> path_of;
  for (Ref ref : tensor_paths_)
    path_of.emplace(log_->value_of(result.nodes[ref].object.get()), ref);
  for (LogValue input : log_->used_inputs()) {
    const Ref ref = path_of.at(input);
    result.nodes[ref].guards |= kGuardTensor;
    wanted.inputs.push_back(input);
    const bool is_there = std::ranges::find(dropped_, ref) == dropped_.end();
    wanted.module_state.push_back(is_there && is_module_state(result.nodes, ref));
    result.program_inputs.push_back(ref);
  }
  ProgramNumbers program_numbers(result.nodes, wanted, result.program_scalars);
  for (ScalarId scalar : log_->used_scalars()) {
    if (result.nodes[scalar].late)
      program_numbers.define(scalar);
    else
      program_numbers.give(scalar);
  }
  std::unordered_set<Ref> seen;
  std::vector<Ref> numbers;
  each_operand(result, [&](const Operand& operand) {
    if (operand.ref == 0 || !seen.insert(operand.ref).second) return;
    const Node& node = result.nodes[operand.ref];
    if (node.late) {
      program_numbers.define(operand.ref);
      wanted.wanted_numbers.push_back(operand.ref);
      numbers.push_back(operand.ref);
    } else if (node.kind == NodeKind::tensor) {
      wanted.outputs.push_back(node.index);
      result.program_outputs.push_back(operand.ref);
    }
  });
  result.program_outputs.insert(result.program_outputs.end(), numbers.begin(), numbers.end());
  if (sizes.any()) describe_sizes(result, wanted, program_numbers);
  for (const Ref scalar : result.program_scalars) {
    result.nodes[scalar].guards |= kGuardType;
    wanted.examples.push_back(to_number(result.nodes[scalar].object.get()));
  }
  result.program = log_->finish(wanted);
  if (result.program == nullptr) return false;
  if (sizes.any()) guard_sizes_of_program(result);
  return true;
}

}  // namespace smelt::bytecode
