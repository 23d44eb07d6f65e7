#include "bridge/log_program.h"

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <sstream>
#include <unordered_map>
#include <unordered_set>

#include "aten/number_node.h"
#include "base/error.h"
#include "bridge/machine/linked_program.h"
#include "capture/log/grad_ops.h"
#include "diagnostics/counters.h"
#include "log/liveness.h"

namespace smelt {
namespace {

// An op with effects that nobody could put back.
bool changes_unseen(const OpInfo& op) {
  return op.may_have_effects && (op.is_mutable || op.traits.effect);
}

std::string describe(const LoggedTensor& value) {
  std::string text = c10::toString(value.dtype);
  text += '[';
  for (size_t i = 0; i < value.sizes.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(value.sizes[i]);
  }
  text += ']';
  if (!value.device.is_cpu()) text += "@" + value.device.str();
  return text;
}

// Tests: its text says all of it.
void check_text(CallLog plain, const OpLog& log) {
  add_types(plain, log);
  add_literals(plain, log);
  plain.verify();
  SMELT_CHECK(CallLog::parse(plain.str()) == plain, "the text of a log is not complete");
}

}  // namespace

int32_t LogProgram::number_of(ScalarId id) const {
  const auto found = number_of_.find(id);
  return found == number_of_.end() ? -1 : found->second;
}

LogProgram::LogProgram(const OpLog& log, const CallLog& plain, const Interface& interface)
    : scalars_(interface.scalars.begin(), interface.scalars.end()),
      numbers_(interface.numbers.begin(), interface.numbers.end()),
      ambients_(log.ambients()),
      register_of_(log.values().size(), -1) {
  const auto& inputs = interface.inputs;
  const auto& outputs = interface.outputs;
  if (interface.sizes) sizes_ = *interface.sizes;
  for (const Number& example : interface.examples) scalar_examples_.push_back(to_scalar(example));
  for (size_t i = 0; i < numbers_.size(); ++i) {
    number_of_.emplace(numbers_[i].id, static_cast<int32_t>(i));
    if (numbers_[i].item >= 0) number_of_item_.emplace(numbers_[i].item, i);
  }
  for (ScalarId id : interface.wanted_numbers)
    wanted_numbers_.push_back(static_cast<uint32_t>(number_of(id)));
  for (LogValue value : inputs) {
    inputs_.push_back(reg(value));
    input_texts_.push_back(describe(log.values()[value]));
  }
  if (LinkedProgram::check_types) check_text(plain, log);
  Liveness live = find_live(plain, outputs, numbers_, wanted_numbers_);
  live_ = std::move(live.calls);
  for (uint32_t number = 0; number < numbers_.size(); ++number)
    if (live.numbers[number]) needed_numbers_.push_back(number);
  make_constants(log, live_, outputs);
  make_steps(log, live_, outputs);
  note_grads(log, live_, inputs, outputs);
  note_versions(log, live_, inputs, outputs);
  find_saved(log, live_, inputs);
  for (LogValue value : outputs) {
    if (value >= 0 && register_of_[value] < 0)
      throw Error("an output of the traced code is neither an input nor a result of its ops");
    if (value >= 0 && log.values()[value].retains_grad) retained_.push_back(outputs_.size());
    outputs_.push_back(value < 0 ? -1 : register_of_[value]);
  }
  register_of_ = {};
  number_of_ = {};
}

int32_t LogProgram::reg(LogValue value) {
  int32_t& slot = register_of_[value];
  if (slot < 0) slot = static_cast<int32_t>(registers_++);
  return slot;
}

void LogProgram::make_constants(const OpLog& log, const std::vector<bool>& live,
                                std::span<const LogValue> outputs) {
  std::vector<bool> touched(log.values().size() + 1);  // by memory
  const auto touch = [&](LogValue value) {
    if (value < 0) return;
    const auto memory = static_cast<size_t>(log.values()[value].memory);
    if (memory >= touched.size()) touched.resize(memory + 1);
    touched[memory] = true;
  };
  for (LogValue value : outputs) touch(value);
  std::vector<bool> used(log.values().size());
  for (LogValue value : outputs)
    if (value >= 0) used[value] = true;
  for (size_t i = 0; i < live.size(); ++i) {
    if (!live[i]) continue;
    for (LogValue value : log.items()[i].written) touch(value);
    each_argument(log.items()[i], [&](LogValue value) { used[value] = true; });
  }
  for (size_t id = 0; id < log.values().size(); ++id) {
    const LoggedTensor& value = log.values()[id];
    if (value.kind != LoggedTensor::Kind::constant || !used[id]) continue;
    const auto memory = static_cast<size_t>(value.memory);
    const bool shared = memory >= touched.size() || !touched[memory] ||
                        value.constant.unsafeGetTensorImpl()->is_wrapped_number();
    constants_.push_back({reg(static_cast<LogValue>(id)), value.constant, shared});
  }
}

std::vector<LogProgram::NumberUse> LogProgram::number_uses(const LogItem& item) const {
  std::vector<NumberUse> uses;
  for (const LogScalar& scalar : item.scalars) {
    const auto at = std::find(scalars_.begin(), scalars_.end(), scalar.id);
    auto index = static_cast<uint32_t>(at - scalars_.begin());
    if (at == scalars_.end()) {
      const int32_t number = number_of(scalar.id);
      if (number < 0)
        throw Error(item.op->name.str() +
                    " takes a number that is not among the program's scalars");
      index += static_cast<uint32_t>(number);
    }
    uses.push_back({scalar.argument, scalar.element, scalar.is_tensor, index});
  }
  return uses;
}

namespace {

// Of an op that the recorder may find neither a rule nor a meta kernel for.
std::optional<KnownResults> known_results(const OpLog& log, const LogItem& item) {
  if (item.op->meta || item.op->is_composite || is_own_op(*item.op) || item.op == &opaque_op())
    return std::nullopt;
  KnownResults known{item.op->handle, {}};
  for (const LogValue value : item.results) {
    known.types.push_back(value < 0 ? std::nullopt : log.values()[value].type());
    if (value >= 0 && (!known.types.back() || log.values()[value].dynamic)) return std::nullopt;
  }
  return known;
}

}  // namespace

LogProgram::Step LogProgram::make_step(const OpLog& log, const LogItem& item,
                                       const std::vector<std::vector<bool>>& last) {
  Step step;
  step.op = item.op->handle;
  step.arguments = item.arguments;
  step.numbers = number_uses(item);
  step.ambient = item.ambient;
  step.number = item.number;
  step.is_expectation = item.op == &expect_op();
  step.expected = item.expected ? std::optional(item.given) : std::nullopt;
  step.registers_hook = item.registers_hook;
  step.is_factory = item.op->is_factory && !item.op->is_custom;
  step.has_effects = item.has_effects;
  step.known = known_results(log, item);
  for (size_t s = 0; s < item.slots.size(); ++s) {
    const LogSlot& slot = item.slots[s];
    Slot linked{slot.argument,
                slot.is_list,
                slot.is_optional_list,
                {},
                last.empty() ? std::vector<bool>() : last[s]};
    for (LogValue value : slot.values) {
      if (value >= 0 && register_of_[value] < 0)
        throw Error(item.op->name.str() + " reads a tensor that is not among the program's inputs");
      linked.registers.push_back(value < 0 ? -1 : register_of_[value]);
    }
    step.slots.push_back(std::move(linked));
  }
  return step;
}

std::vector<LogProgram::Step> LogProgram::make_inner_steps(const OpLog& log,
                                                           const std::vector<LogItem>& items) {
  std::vector<Step> steps;
  for (const LogItem& item : items) {
    steps.push_back(make_step(log, item, {}));
    for (const LogValue value : item.results)
      steps.back().results.push_back(value < 0 ? -1 : reg(value));
  }
  return steps;
}

LogProgram::Hook LogProgram::make_hook(const OpLog& log, const LogHook& hook) {
  Hook made{
      hook.tensor < 0 ? -1 : reg(hook.tensor), static_cast<int32_t>(hook.function), {}, {}, {}};
  for (const LogValue grad : hook.grads) made.grads.push_back(grad < 0 ? -1 : reg(grad));
  made.steps = make_inner_steps(log, hook.items);
  for (const LogValue value : hook.results) made.results.push_back(value < 0 ? -1 : reg(value));
  return made;
}

std::shared_ptr<const LogProgram::Function> LogProgram::make_function(const OpLog& log,
                                                                      const LogFunction& function,
                                                                      size_t item) {
  auto made = std::make_shared<Function>();
  made->id = static_cast<int32_t>(item);
  made->differentiable = function.differentiable;
  made->materializes = function.materializes;
  for (const LogValue value : function.inputs) made->inputs.push_back(value < 0 ? -1 : reg(value));
  made->steps = make_inner_steps(log, function.items);
  for (const LogValue value : function.outputs) made->outputs.push_back(reg(value));
  return made;
}

void LogProgram::make_steps(const OpLog& log, const std::vector<bool>& live,
                            std::span<const LogValue> outputs) {
  std::vector<bool> later(log.values().size());  // read after the step at hand
  for (LogValue value : outputs)
    if (value >= 0) later[value] = true;
  const auto draw_from = [&](const at::Generator& generator) {
    if (std::find(generators_.begin(), generators_.end(), generator) == generators_.end())
      generators_.push_back(generator);
  };
  std::vector<std::vector<bool>> needed_results(live.size());
  std::vector<std::vector<std::vector<bool>>> last_uses(live.size());
  for (size_t i = live.size(); i-- > 0;) {
    if (!live[i]) continue;
    const LogItem& item = log.items()[i];
    for (LogValue value : item.results) needed_results[i].push_back(value >= 0 && later[value]);
    for (auto slot = item.slots.rbegin(); slot != item.slots.rend(); ++slot) {
      std::vector<bool> last(slot->values.size());
      for (size_t k = slot->values.size(); k-- > 0;) {
        const LogValue value = slot->values[k];
        if (value < 0) continue;
        last[k] = !later[value];
        later[value] = true;
      }
      last_uses[i].push_back(std::move(last));
    }
    std::reverse(last_uses[i].begin(), last_uses[i].end());
  }
  for (size_t i = 0; i < live.size(); ++i) {
    if (!live[i]) continue;
    const LogItem& item = log.items()[i];
    // Hooks and functions take what they need while they run.
    const bool is_simple = item.hooks.empty() && !item.function;
    Step step = make_step(log, item, is_simple ? last_uses[i] : std::vector<std::vector<bool>>());
    step.item = i;
    if (item.function) step.function = make_function(log, *item.function, i);
    for (const LogHook& hook : item.hooks) step.hooks.push_back(make_hook(log, hook));
    for (size_t k = 0; item.sized && k < item.results.size(); ++k)
      step.sizes.push_back(log.values()[item.results[k]].sizes);
    has_hooks_ = has_hooks_ || !item.hooks.empty();
    items_ = std::max(items_, static_cast<size_t>(item.number + 1));
    expects_ = expects_ || step.is_expectation || item.sized || item.expected;
    result_texts_.emplace_back();
    bool tracked = false;
    for (size_t k = 0; k < item.results.size(); ++k) {
      const LogValue value = item.results[k];
      step.results.push_back(needed_results[i][k] ? reg(value) : -1);
      if (value < 0) {
        result_texts_.back().emplace_back("none");
        continue;
      }
      result_texts_.back().push_back(describe(log.values()[value]));
      tracked = tracked || log.values()[value].requires_grad;
    }
    uses_autograd_ = uses_autograd_ || (tracked && log.ambients()[item.ambient].grad);
    one_ambient_ = one_ambient_ && item.ambient == 0;
    writes_ = writes_ || !item.written.empty();
    if (log.changes_input(item) || changes_unseen(*item.op) || is_grad_op(*item.op)) {
      fails_cleanly_ = false;
      first_change_ = std::min(first_change_, i);
    }
    if (item.random || (item.op->is_custom && !is_own_op(*item.op))) {
      for (const c10::IValue& argument : item.arguments)
        if (argument.isGenerator()) draw_from(argument.toGenerator());
      for (LogValue value : item.results)
        if (value >= 0) draw_from(at::globalContext().defaultGenerator(log.values()[value].device));
    }
    steps_.push_back(std::move(step));
  }
}

bool LogProgram::computes_without_numbers() const {
  return std::ranges::all_of(steps_, [&](const Step& step) {
    return step.is_expectation || std::ranges::all_of(step.numbers, [&](const NumberUse& use) {
             return use.index < scalars_.size();
           });
  });
}

namespace {

// A number that does not fit the type it is converted to, a division by 0. As a tensor beside
// tensors of floating point it is converted without a check.
bool number_may_fail(const OpLog& log, const LogItem& item) {
  const auto is_float = [&](LogValue result) {
    return result >= 0 && c10::isFloatingType(log.values()[result].dtype);
  };
  return std::any_of(item.scalars.begin(), item.scalars.end(), [&](const LogScalar& scalar) {
    return !scalar.is_tensor || !std::all_of(item.results.begin(), item.results.end(), is_float);
  });
}

// Whether it may raise depends on what is in its tensors, or on a number. All else that an op
// checks is guarded.
bool may_fail(const OpLog& log, const LogItem& item) {
  if (item.op == &set_grad_op()) return false;
  return item.op->is_custom || item.op->facts.may_fail || item.sized || item.expected ||
         number_may_fail(log, item);
}

}  // namespace

// What autograd has seen of a change can't be put back.
bool LogProgram::may_restore(const OpLog& log, const LogItem& item, LogValue written) const {
  const LoggedTensor& tensor = log.values()[written];
  return tensor.memory != 0 && (!tensor.requires_grad || !log.ambients()[item.ambient].grad);
}

namespace {

// Of an item, with those that it runs itself.
template <typename Visit>
void each_part(const LogItem& item, const Visit& visit) {
  visit(item);
  for (const LogHook& hook : item.hooks)
    for (const LogItem& part : hook.items) each_part(part, visit);
  if (item.function)
    for (const LogItem& part : item.function->items) each_part(part, visit);
}

}  // namespace

void LogProgram::note_versions(const OpLog& log, const std::vector<bool>& live,
                               std::span<const LogValue> inputs,
                               std::span<const LogValue> outputs) {
  std::unordered_set<int32_t> written;  // memory
  std::unordered_map<LogValue, uint32_t> rises;
  for (size_t i = 0; i < live.size(); ++i) {
    if (!live[i]) continue;
    each_part(log.items()[i], [&](const LogItem& item) {
      for (LogValue value : item.written) written.insert(log.values()[value].memory);
      for (const auto& [value, rise] : item.rises) rises[value] += rise;
    });
  }
  for (size_t k = 0; k < inputs.size(); ++k)
    if (written.contains(log.values()[inputs[k]].memory))
      version_rises_.inputs.emplace_back(k, rises[inputs[k]]);
  for (size_t k = 0; k < outputs.size(); ++k) {
    if (outputs[k] < 0) continue;
    const LoggedTensor& output = log.values()[outputs[k]];
    const uint32_t version = output.first_version + rises[outputs[k]];
    if (output.kind == LoggedTensor::Kind::result && !log.is_input_memory(output.memory) &&
        version != 0)
      version_rises_.outputs.emplace_back(k, version);
  }
}

// Inputs whose gradients the program sets, and those that it drops before anything else.
void LogProgram::note_grads(const OpLog& log, const std::vector<bool>& live,
                            std::span<const LogValue> inputs, std::span<const LogValue> outputs) {
  bool first = true;
  const bool goes_on = std::any_of(outputs.begin(), outputs.end(), [&](LogValue output) {
    return log.is_tracked(output) && !log.is_consumed(output);
  });
  const auto note = [&](LogValue value, std::vector<size_t>& list) {
    const auto at = std::find(inputs.begin(), inputs.end(), value);
    const auto index = static_cast<size_t>(at - inputs.begin());
    if (at != inputs.end() && std::find(list.begin(), list.end(), index) == list.end())
      list.push_back(index);
  };
  for (size_t i = 0; i < live.size(); ++i) {
    if (!live[i]) continue;
    const LogItem& item = log.items()[i];
    const bool sets = item.op == &set_grad_op();
    const bool clears = sets && first && item.slots.size() == 1;
    if (clears) note(item.slots[0].values[0], cleared_first_);
    if (!clears && (is_grad_op(*item.op) || item.op == &grad_op())) clears_only_ = false;
    first = first && sets;
    has_grads_ = has_grads_ || is_grad_op(*item.op);
    if (sets) note(item.slots[0].values[0], grad_owners_);
    if (item.op == &grad_op()) {
      has_backward_ = true;
      has_grads_ = has_grads_ || !goes_on;
    }
    if (item.op != &backward_op()) continue;
    has_backward_ = true;
    for (LogValue leaf : item.slots[2].values) note(leaf, grad_owners_);
  }
}

// A run that fails behind a change of an input must not leave that change, as the caller starts
// over.
void LogProgram::find_saved(const OpLog& log, const std::vector<bool>& live,
                            std::span<const LogValue> inputs) {
  std::vector<int32_t> written;  // memory of inputs
  bool is_needed = false, sets_grads = false;
  for (size_t i = 0; i < live.size(); ++i) {
    if (!live[i]) continue;
    const LogItem& item = log.items()[i];
    if (changes_unseen(*item.op)) return;
    const bool has_changed = !written.empty() || sets_grads;
    is_needed = is_needed || (has_changed && may_fail(log, item));
    sets_grads = sets_grads || is_grad_op(*item.op);
    for (LogValue value : item.written) {
      const LoggedTensor& tensor = log.values()[value];
      if (!log.is_input_memory(tensor.memory)) continue;
      if (!may_restore(log, item, value)) return;
      written.push_back(tensor.memory);
    }
  }
  // Whether an op fails can't be helped where gradients are part of the program: what was
  // expected can.
  if (!is_needed || (sets_grads && !expects_)) return;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const LoggedTensor& input = log.values()[inputs[i]];
    if (std::find(written.begin(), written.end(), input.memory) != written.end())
      saved_.push_back(i);
  }
  fails_cleanly_ = true;
}

namespace {

void print(std::ostream& out, const c10::IValue& value) {
  if (value.isList()) {
    out << "[";
    const char* separator = "";
    for (const c10::IValue& item : value.toListRef()) {
      out << separator;
      print(out, item);
      separator = ", ";
    }
    out << "]";
  } else if (value.isGenerator() || value.isCustomClass()) {
    out << value.tagKind();
  } else {
    out << value;
  }
}

}  // namespace

// Of no tensor, or of a run-time scalar, s0.
void LogProgram::print_argument(std::ostream& out, const Step& step, size_t index) const {
  const char* separator = "";
  for (const NumberUse& use : step.numbers) {
    if (use.argument != index) continue;
    out << separator << "s" << use.index;
    if (use.element >= 0) out << " at " << use.element;
    separator = ", ";
  }
  if (*separator == '\0') print(out, step.arguments[index]);
}

std::string LogProgram::str() const {
  std::ostringstream out;
  for (size_t i = 0; i < inputs_.size(); ++i)
    out << "%" << inputs_[i] << ": " << input_texts_[i] << " = input " << i << "\n";
  for (const Constant& constant : constants_)
    out << "%" << constant.reg << ": " << c10::toString(constant.tensor.scalar_type())
        << constant.tensor.sizes() << " = constant"
        << (constant.shared ? "" : ", copied for each run") << "\n";
  for (size_t s = 0; s < steps_.size(); ++s) {
    const Step& step = steps_[s];
    for (size_t i = 0; i < step.results.size(); ++i) {
      out << (i ? ", " : "");
      if (step.results[i] < 0)
        out << "_";
      else
        out << "%" << step.results[i] << ": " << result_texts_[s][i];
    }
    out << (step.results.empty() ? "" : " = ") << step.op->schema().name();
    if (!step.op->schema().overload_name().empty()) out << "." << step.op->schema().overload_name();
    out << "(";
    for (size_t i = 0; i < step.arguments.size(); ++i) {
      out << (i ? ", " : "");
      const auto slot = std::find_if(step.slots.begin(), step.slots.end(),
                                     [&](const Slot& other) { return other.argument == i; });
      if (slot == step.slots.end()) {
        print_argument(out, step, i);
        continue;
      }
      out << (slot->is_list ? "[" : "");
      for (size_t k = 0; k < slot->registers.size(); ++k) {
        out << (k ? ", " : "");
        if (slot->registers[k] < 0)
          out << "None";
        else
          out << "%" << slot->registers[k];
      }
      out << (slot->is_list ? "]" : "");
    }
    out << ")";
    if (const std::string ambient = ambients_[step.ambient].str(); !ambient.empty())
      out << "  # " << ambient;
    out << "\n";
  }
  out << "return";
  for (size_t i = 0; i < outputs_.size(); ++i)
    out << (i ? ", " : " ") << (outputs_[i] < 0 ? "None" : "%" + std::to_string(outputs_[i]));
  out << "\n";
  return out.str();
}

}  // namespace smelt
