// How a trace becomes the data of a segment: what happened up to its last good point, less what
// nobody needs.
#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "capture/bytecode/cpython/known_types.h"
#include "capture/bytecode/nodes/number_ops.h"
#include "capture/bytecode/nodes/paths.h"
#include "capture/bytecode/nodes/program_numbers.h"
#include "capture/bytecode/trace/trace.h"

namespace smelt::bytecode {
namespace {

bool is_made(const Node& node) {
  return node.kind == NodeKind::result || node.kind == NodeKind::tensor;
}

// The input that a step changes: a method of a builtin type changes nothing but its object.
size_t changed_by(const Step& step) {
  if (step.kind != StepKind::call || step.inputs.size() < 2) return 0;
  PyObject* callee = step.inputs[0].constant.get();
  const bool is_method = callee != nullptr && (Py_TYPE(callee) == &PyMethodDescr_Type ||
                                               Py_TYPE(callee) == &PyWrapperDescr_Type);
  return is_method ? 1 : 0;
}

// torch._C._set_grad_enabled(False) and the like, and torch.device.__enter__.
bool is_switch(const Step& step) {
  const auto is_function = [](PyObject* callee) {
    return PyCFunction_Check(callee) || (Py_TYPE(callee) == &PyMethodDescr_Type &&
                                         PyDescr_TYPE(callee) == known_type(KnownType::device));
  };
  return step.kind == StepKind::call && step.inputs[0].ref == 0 &&
         is_function(step.inputs[0].constant.get()) &&
         std::ranges::all_of(step.inputs, [](const Operand& input) { return input.ref == 0; });
}

// Marks what is needed, starting from the exit and from changes to objects that existed before. An
// object that is needed needs the step that makes it and all that change it.
class Liveness {
 public:
  Liveness(const std::vector<Node>& nodes, const std::vector<Step>& steps)
      : nodes_(nodes),
        steps_(steps),
        live_(steps.size()),
        seen_(nodes.size()),
        makers_(nodes.size(), kNone),
        last_changers_(nodes.size(), kNone),
        earlier_changers_(steps.size(), kNone) {
    for (size_t i = 0; i < steps.size(); ++i) {
      if (steps[i].result != 0) makers_[steps[i].result] = i;
      // What is done to an object's __dict__ is done to the object.
      const bool is_view = steps[i].kind == StepKind::instance_dict;
      if ((steps[i].effect || is_view) && !steps[i].inputs.empty()) {
        const Ref changed = steps[i].inputs[changed_by(steps[i])].ref;
        earlier_changers_[i] = std::exchange(last_changers_[changed], i);
      }
    }
  }

  void run(const Exit& exit) {
    for (size_t i = 0; i < steps_.size(); ++i)
      if (steps_[i].effect && !changes_made_object(steps_[i])) keep(i);
    need(exit.value);
    for (const Operand& slot : exit.slots) need(slot);
    while (!todo_.empty()) {
      const Ref ref = todo_.back();
      todo_.pop_back();
      if (makers_[ref] != kNone) keep(makers_[ref]);
      if (!is_made(nodes_[ref])) continue;
      for (size_t i = last_changers_[ref]; i != kNone; i = earlier_changers_[i]) keep(i);
    }
  }

  bool is_live(size_t step) const { return live_[step]; }

 private:
  static constexpr size_t kNone = ~size_t{0};

  bool changes_made_object(const Step& step) const {
    if (step.inputs.empty()) return false;
    const size_t at = changed_by(step);
    const Node& changed = nodes_[step.inputs[at].ref];
    return step.kind == StepKind::call ? at == 1 && changed.kind == NodeKind::result
                                       : is_made(changed);
  }

  void keep(size_t step) {
    if (live_[step]) return;
    live_[step] = true;
    for (const Operand& input : steps_[step].inputs) need(input);
    if (steps_[step].kind == StepKind::instance_dict) need({steps_[step].result, {}});
  }

  void need(const Operand& operand) {
    if (operand.ref == 0 || seen_[operand.ref]) return;
    seen_[operand.ref] = true;
    todo_.push_back(operand.ref);
  }

  const std::vector<Node>& nodes_;
  const std::vector<Step>& steps_;
  std::vector<bool> live_, seen_;
  std::vector<Ref> todo_;
  std::vector<size_t> makers_;            // by ref: the step that makes it
  std::vector<size_t> last_changers_;     // by ref: the last step that changes it
  std::vector<size_t> earlier_changers_;  // by step: the one before it that changes the same object
};

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
}

std::optional<TraceResult> Trace::finish(Exit exit, const Position& position,
                                         const Request& request) {
  steps_.resize(position.steps);
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
  result.aliases = std::move(required_.aliases);
  result.readings = std::move(required_.readings);
  result.remembered = std::move(required_.remembered);
  drop_unneeded_steps(result);
  add_distinctness(result);
  if (!make_program(result, position, request)) return std::nullopt;
  return result;
}

// Whether a step changes what was there before the first `nodes` of the account.
bool Trace::is_change(const Step& step, Ref nodes) const {
  if (!step.effect || is_switch(step)) return false;
  const Ref target = step.inputs.empty() ? 0 : step.inputs[changed_by(step)].ref;
  return target < std::max<Ref>(nodes, 1) || !is_made(nodes_[target]);
}

bool Trace::has_changed(Mark since) const {
  return active() && std::any_of(steps_.begin() + static_cast<ptrdiff_t>(since.steps), steps_.end(),
                                 [&](const Step& step) { return is_change(step, since.nodes); });
}

namespace {

// ContextVar.set(value), reset(token) of a token that the trace has: which of these are open at
// present is known otherwise (StateSeen::context_values).
bool is_of_context(const Step& step, const std::vector<Node>& nodes) {
  constexpr size_t kInputs = 3;  // the method, the variable, the value or token
  PyObject* callee = step.kind == StepKind::call && step.inputs.size() == kInputs
                         ? step.inputs[0].constant.get()
                         : nullptr;
  if (callee == nullptr || Py_TYPE(callee) != &PyMethodDescr_Type ||
      PyDescr_TYPE(callee) != &PyContextVar_Type)
    return false;
  return PyUnicode_CompareWithASCIIString(PyDescr_NAME(callee), "set") == 0 ||
         nodes[step.inputs[2].ref].kind == NodeKind::result;
}

}  // namespace

bool Trace::has_pending_change() const {
  return std::ranges::any_of(steps_, [&](const Step& step) {
    if (is_of_context(step, nodes_)) return false;
    const bool is_cached = step.kind == StepKind::call && step.inputs[0].ref != 0 &&
                           !nodes_[step.inputs[0].ref].gone &&
                           is_cached_function(nodes_[step.inputs[0].ref].object.get());
    return !is_cached && is_change(step, 0);
  });
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
  Liveness liveness(nodes_, steps_);
  liveness.run(exit);
  for (size_t i = 0; i < steps_.size(); ++i)
    if (liveness.is_live(i) && std::ranges::count(raised, steps_[i].result) > 0) return true;
  return false;
}

void Trace::drop_unneeded_steps(TraceResult& result) const {
  Liveness liveness(result.nodes, result.steps);
  liveness.run(result.exit);
  std::vector<Step> kept;
  for (size_t i = 0; i < result.steps.size(); ++i)
    if (liveness.is_live(i)) {
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
