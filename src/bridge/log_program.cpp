#include "bridge/log_program.h"

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <sstream>
#include <unordered_map>
#include <unordered_set>

#include "aten/convert.h"
#include "aten/number_node.h"
#include "base/error.h"
#include "bridge/machine/linked_program.h"
#include "diagnostics/counters.h"
#include "log/liveness.h"
#include "log/own_ops.h"
#include "ops/facts.h"

namespace smelt {
namespace {

std::optional<c10::ScalarType> dtype_of(const CallLog& log, LogValue value) {
  if (value < 0 || !log.value(value).type) return std::nullopt;
  return to_scalar_type(log.value(value).type->dtype);
}

// An op with effects that nobody could put back.
bool changes_unseen(const OpInfo& op) {
  return op.may_have_effects && (op.is_mutable || op.traits.effect);
}

std::string describe(const LoggedValue& value) {
  if (!value.type) return "?";
  std::string text = c10::toString(to_scalar_type(value.type->dtype)) + str(value.type->sizes);
  const c10::Device device = to_c10(value.type->device);
  if (!device.is_cpu()) text += "@" + device.str();
  return text;
}

// Tests: its text says all of it.
void check_text(const CallLog& log) {
  log.verify();
  SMELT_CHECK(CallLog::parse(log.str()) == log, "the text of a log is not complete");
}

}  // namespace

int32_t LogProgram::number_of(ScalarId id) const {
  const auto found = number_of_.find(id);
  return found == number_of_.end() ? -1 : found->second;
}

LogProgram::LogProgram(const OpLog& log, const Interface& interface)
    : scalars_(interface.scalars.begin(), interface.scalars.end()),
      numbers_(interface.numbers.begin(), interface.numbers.end()),
      ambients_(log.ambients()),
      register_of_(log.plain().values.size(), -1) {
  const CallLog& plain = log.plain();
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
    input_texts_.push_back(describe(log.plain().value(value)));
  }
  if (LinkedProgram::check_types) check_text(plain);
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
    if (value >= 0 && plain.value(value).retains_grad) retained_.push_back(outputs_.size());
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
  const CallLog& plain = log.plain();
  std::vector<bool> touched(plain.values.size() + 1);  // by memory
  const auto touch = [&](LogValue value) {
    if (value < 0) return;
    const auto memory = static_cast<size_t>(plain.value(value).memory);
    if (memory >= touched.size()) touched.resize(memory + 1);
    touched[memory] = true;
  };
  for (LogValue value : outputs) touch(value);
  std::vector<bool> used(plain.values.size());
  for (LogValue value : outputs)
    if (value >= 0) used[value] = true;
  for (size_t i = 0; i < live.size(); ++i) {
    if (!live[i]) continue;
    for (LogValue value : plain.calls[i].written) touch(value);
    each_argument(plain.calls[i], [&](LogValue value) { used[value] = true; });
  }
  for (size_t id = 0; id < plain.values.size(); ++id) {
    const LoggedValue& value = plain.values[id];
    if (value.kind != LoggedValue::Kind::constant || !used[id]) continue;
    const auto memory = static_cast<size_t>(value.memory);
    const at::Tensor& constant = log.real_tensors()[id].constant;
    const bool shared = memory >= touched.size() || !touched[memory] ||
                        constant.unsafeGetTensorImpl()->is_wrapped_number();
    constants_.push_back({reg(static_cast<LogValue>(id)), constant, shared});
  }
}

std::vector<LogProgram::NumberUse> LogProgram::number_uses(const LoggedCall& call) const {
  std::vector<NumberUse> uses;
  for (const TakenNumber& taken : call.takes) {
    const auto at = std::find(scalars_.begin(), scalars_.end(), taken.id);
    auto index = static_cast<uint32_t>(at - scalars_.begin());
    if (at == scalars_.end()) {
      const int32_t number = number_of(taken.id);
      if (number < 0)
        throw Error(call.op.str() + " takes a number that is not among the program's scalars");
      index += static_cast<uint32_t>(number);
    }
    uses.push_back({taken.argument, taken.element, taken.is_tensor, index});
  }
  return uses;
}

namespace {

// Of an op that the recorder may find neither a rule nor a meta kernel for.
std::optional<KnownResults> known_results(const CallLog& log, const LoggedCall& call,
                                          const OpInfo& op) {
  if (op.meta || op.is_composite || own_ops::is_own(call.op) || call.op == own_ops::kOpaqueCall)
    return std::nullopt;
  KnownResults known{op.handle, {}};
  for (const LogValue value : call.results) {
    known.types.push_back(value < 0 ? std::nullopt : log.value(value).type);
    if (value >= 0 && (!known.types.back() || log.value(value).dynamic)) return std::nullopt;
  }
  return known;
}

// Of a list; nullptr: it is none.
c10::TypePtr element_of(const c10::TypePtr& type) {
  if (const auto* optional = type->castRaw<c10::OptionalType>())
    return element_of(optional->getElementType());
  const auto* list = type->castRaw<c10::ListType>();
  return list ? list->getElementType() : nullptr;
}

// Where tensors go, whose registers are not known yet; nothing: the argument takes none.
std::optional<BoxedCall::Slot> slot_of(const Arg& arg, const c10::TypePtr& type, uint32_t index) {
  if (arg.is<Ref>()) return BoxedCall::Slot{.argument = index, .registers = {}};
  if (!arg.is<ArgList>()) return std::nullopt;
  const c10::TypePtr element = element_of(type);
  const bool is_optional = element && element->kind() == c10::TypeKind::OptionalType;
  const c10::TypePtr held =
      is_optional ? element->castRaw<c10::OptionalType>()->getElementType() : element;
  if (!held || held->kind() != c10::TypeKind::TensorType) return std::nullopt;
  return BoxedCall::Slot{
      .argument = index, .is_list = true, .is_optional_list = is_optional, .registers = {}};
}

// The literals of a call, as the dispatcher takes them.
ArgReader literals_of(const RealCall& real) {
  return {.tensor = {},
          .opaque = [&real](Opaque opaque) { return real.opaque[opaque.index]; },
          .size = [](const Size& size) { return size.known(); }};
}

}  // namespace

LogProgram::Step LogProgram::make_step(const OpLog& log, const LoggedCall& call,
                                       const RealCall& real, const std::vector<bool>& last) {
  const OpInfo& op = *real.op;
  Step step;
  step.op = op.handle;
  step.numbers = number_uses(call);
  step.ambient = call.ambient;
  step.number = call.number;
  step.is_expectation = call.op == own_ops::kExpect;
  step.expected = call.expected ? std::optional(scalar_of(call.given)) : std::nullopt;
  step.registers_hook = call.registers_hook;
  step.is_factory = (op.is_factory && !op.is_custom) || op.facts.makes_new;
  step.has_effects = call.has_effects;
  step.known = known_results(log.plain(), call, op);
  if (op.handle.hasTag(at::Tag::inplace_view) || op.facts.resizes || op.facts.sets_storage)
    reshapes_inputs_ |= std::ranges::any_of(call.written, [&](LogValue value) {
      return log.plain().value(value).kind == LoggedValue::Kind::input;
    });
  const ArgReader literals = literals_of(real);
  size_t next = 0;  // in `last`
  step.arguments.reserve(call.args.size());
  for (uint32_t i = 0; i < call.args.size(); ++i) {
    std::optional<Slot> slot = slot_of(call.args[i], op.arg_types[i], i);
    if (!slot) {
      step.arguments.push_back(to_ivalue(call.args[i], op.arg_types[i], literals));
      continue;
    }
    const auto take = [&](const Arg& arg) {
      const LogValue value = arg.is<Ref>() ? arg.get<Ref>().id : -1;
      if (value >= 0 && register_of_[value] < 0)
        throw Error(call.op.str() + " reads a tensor that is not among the program's inputs");
      slot->registers.push_back(value < 0 ? -1 : register_of_[value]);
      if (!last.empty()) slot->last.push_back(value >= 0 && last[next++]);
    };
    if (slot->is_list)
      std::ranges::for_each(call.args[i].get<ArgList>(), take);
    else
      take(call.args[i]);
    step.arguments.emplace_back();
    step.slots.push_back(std::move(*slot));
  }
  return step;
}

std::vector<LogProgram::Step> LogProgram::make_inner_steps(const OpLog& log,
                                                           const InnerCalls& calls) {
  std::vector<Step> steps;
  for (size_t i = 0; i < calls.plain.size(); ++i) {
    steps.push_back(make_step(log, calls.plain[i], calls.real[i], {}));
    for (const LogValue value : calls.plain[i].results)
      steps.back().results.push_back(value < 0 ? -1 : reg(value));
  }
  return steps;
}

LogProgram::Hook LogProgram::make_hook(const OpLog& log, const LogHook& hook) {
  Hook made{
      hook.tensor < 0 ? -1 : reg(hook.tensor), static_cast<int32_t>(hook.function), {}, {}, {}};
  for (const LogValue grad : hook.grads) made.grads.push_back(grad < 0 ? -1 : reg(grad));
  made.steps = make_inner_steps(log, hook.calls);
  for (const LogValue value : hook.results) made.results.push_back(value < 0 ? -1 : reg(value));
  return made;
}

std::shared_ptr<const LogProgram::Function> LogProgram::make_function(const OpLog& log,
                                                                      const LogFunction& function,
                                                                      size_t call) {
  auto made = std::make_shared<Function>();
  made->id = static_cast<int32_t>(call);
  made->differentiable = function.differentiable;
  made->materializes = function.materializes;
  for (const LogValue value : function.inputs) made->inputs.push_back(value < 0 ? -1 : reg(value));
  made->steps = make_inner_steps(log, function.calls);
  for (const LogValue value : function.outputs) made->outputs.push_back(reg(value));
  return made;
}

void LogProgram::make_steps(const OpLog& log, const std::vector<bool>& live,
                            std::span<const LogValue> outputs) {
  const CallLog& plain = log.plain();
  std::vector<bool> later(plain.values.size());  // read after the step at hand
  for (LogValue value : outputs)
    if (value >= 0) later[value] = true;
  const auto draw_from = [&](const at::Generator& generator) {
    if (std::find(generators_.begin(), generators_.end(), generator) == generators_.end())
      generators_.push_back(generator);
  };
  std::vector<std::vector<bool>> needed_results(live.size());
  std::vector<std::vector<bool>> last_uses(live.size());
  std::vector<LogValue> taken;
  for (size_t i = live.size(); i-- > 0;) {
    if (!live[i]) continue;
    const LoggedCall& call = plain.calls[i];
    for (LogValue value : call.results) needed_results[i].push_back(value >= 0 && later[value]);
    taken.clear();
    each_argument(call, [&](LogValue value) { taken.push_back(value); });
    last_uses[i].resize(taken.size());
    for (size_t k = taken.size(); k-- > 0;) {
      last_uses[i][k] = !later[taken[k]];
      later[taken[k]] = true;
    }
  }
  for (size_t i = 0; i < live.size(); ++i) {
    if (!live[i]) continue;
    const LoggedCall& call = plain.calls[i];
    const RealCall& real = log.real_calls()[i];
    // Hooks and functions take what they need while they run.
    const bool is_simple = real.hooks.empty() && !real.function;
    Step step = make_step(log, call, real, is_simple ? last_uses[i] : std::vector<bool>());
    step.call = i;
    if (real.function) step.function = make_function(log, *real.function, i);
    for (const LogHook& hook : real.hooks) step.hooks.push_back(make_hook(log, hook));
    for (size_t k = 0; call.sized && k < call.results.size(); ++k)
      step.sizes.push_back(known_sizes(plain.value(call.results[k]).type->sizes));
    has_hooks_ = has_hooks_ || !real.hooks.empty();
    given_ = std::max(given_, static_cast<size_t>(call.number + 1));
    if (call.op == own_ops::kGrad && call.args[own_ops::kAllowUnused].get<bool>())
      for (const LogValue value : call.results) step.found.push_back(value >= 0);
    expects_ = expects_ || step.is_expectation || call.sized || call.expected;
    result_texts_.emplace_back();
    bool tracked = false;
    for (size_t k = 0; k < call.results.size(); ++k) {
      const LogValue value = call.results[k];
      step.results.push_back(needed_results[i][k] ? reg(value) : -1);
      step.dtypes.push_back(dtype_of(plain, value));
      if (value < 0) {
        result_texts_.back().emplace_back("none");
        continue;
      }
      result_texts_.back().push_back(describe(plain.value(value)));
      tracked = tracked || plain.value(value).requires_grad;
    }
    uses_autograd_ = uses_autograd_ || (tracked && plain.ambients[call.ambient].grad);
    one_ambient_ = one_ambient_ && call.ambient == 0;
    writes_ = writes_ || !call.written.empty();
    if (log.changes_input(call) || changes_unseen(*real.op) ||
        own_ops::changes_gradients(call.op)) {
      fails_cleanly_ = false;
      first_change_ = std::min(first_change_, i);
    }
    if (call.random || (real.op->is_custom && !own_ops::is_own(call.op))) {
      for (const c10::IValue& object : real.opaque)
        if (object.isGenerator()) draw_from(object.toGenerator());
      for (LogValue value : call.results)
        if (value >= 0)
          draw_from(at::globalContext().defaultGenerator(log.real_tensors()[value].device));
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
bool number_may_fail(const CallLog& log, const LoggedCall& call) {
  const auto is_float = [&](LogValue result) {
    return result >= 0 && log.value(result).type && is_floating(log.value(result).type->dtype);
  };
  return std::ranges::any_of(call.takes, [&](const TakenNumber& number) {
    return !number.is_tensor || !std::ranges::all_of(call.results, is_float);
  });
}

// Whether it may raise depends on what is in its tensors, or on a number. All else that an op
// checks is guarded.
bool may_fail(const CallLog& log, const LoggedCall& call) {
  if (call.op == own_ops::kSetGrad) return false;
  return own_ops::is_custom(call.op) || facts_of(call.op).may_fail || call.sized || call.expected ||
         number_may_fail(log, call);
}

// What autograd has seen of a change can't be put back.
bool may_restore(const CallLog& log, const LoggedCall& call, LogValue written) {
  const LoggedValue& value = log.value(written);
  return value.memory != 0 && (!value.requires_grad || !log.ambients[call.ambient].grad);
}

// Of a call, with those that it makes itself.
template <typename Visit>
void each_part(const LoggedCall& call, const RealCall& real, const Visit& visit) {
  const auto each_inner = [&](const InnerCalls& calls) {
    for (size_t i = 0; i < calls.plain.size(); ++i) each_part(calls.plain[i], calls.real[i], visit);
  };
  visit(call);
  for (const LogHook& hook : real.hooks) each_inner(hook.calls);
  if (real.function) each_inner(real.function->calls);
}

// Of a tensor that `.data` gave and of views of it: that one, with which they share their version.
LogValue shown_apart(const CallLog& log, LogValue value) {
  while (value >= 0 && log.value(value).apart && log.value(value).call >= 0) {
    const LoggedCall& call = log.calls[log.value(value).call];
    if (call.op == own_ops::kData) return value;
    value = first_argument(call);
  }
  return -1;
}

}  // namespace

void LogProgram::note_versions(const OpLog& log, const std::vector<bool>& live,
                               std::span<const LogValue> inputs,
                               std::span<const LogValue> outputs) {
  const CallLog& plain = log.plain();
  std::unordered_set<int32_t> written;  // memory
  std::unordered_map<LogValue, uint32_t> rises;
  for (size_t i = 0; i < live.size(); ++i) {
    if (!live[i]) continue;
    each_part(plain.calls[i], log.real_calls()[i], [&](const LoggedCall& call) {
      for (LogValue value : call.written) written.insert(plain.value(value).memory);
      for (const VersionRise& rise : call.rises) rises[rise.value] += rise.by;
    });
  }
  for (size_t k = 0; k < inputs.size(); ++k)
    if (written.contains(plain.value(inputs[k]).memory))
      version_rises_.inputs.emplace_back(k, rises[inputs[k]]);
  for (size_t k = 0; k < outputs.size(); ++k) {
    if (outputs[k] < 0) continue;
    const LoggedValue& output = plain.value(outputs[k]);
    const uint32_t version = log.real_tensors()[outputs[k]].first_version + rises[outputs[k]];
    if (output.kind == LoggedValue::Kind::result && log.is_input_memory(output.memory))
      if (const LogValue data = shown_apart(plain, outputs[k]); data >= 0)
        version_rises_.apart.push_back({k, data, version});
    if (output.kind == LoggedValue::Kind::result && !log.is_input_memory(output.memory) &&
        version != 0)
      version_rises_.outputs.emplace_back(k, version);
  }
}

// Inputs whose gradients the program sets, and those that it drops before anything else.
void LogProgram::note_grads(const OpLog& log, const std::vector<bool>& live,
                            std::span<const LogValue> inputs, std::span<const LogValue> outputs) {
  bool first = true;
  const bool goes_on = std::any_of(outputs.begin(), outputs.end(), [&](LogValue output) {
    return log.plain().is_tracked(output) && !log.is_consumed(output);
  });
  const auto note = [&](LogValue value, std::vector<size_t>& list) {
    const auto at = std::find(inputs.begin(), inputs.end(), value);
    const auto index = static_cast<size_t>(at - inputs.begin());
    if (at != inputs.end() && std::find(list.begin(), list.end(), index) == list.end())
      list.push_back(index);
  };
  for (size_t i = 0; i < live.size(); ++i) {
    if (!live[i]) continue;
    const LoggedCall& call = log.plain().calls[i];
    const bool sets = call.op == own_ops::kSetGrad;
    const bool clears = sets && first && call.args[1].is_none();
    if (clears) note(first_argument(call), cleared_first_);
    if (!clears && (own_ops::changes_gradients(call.op) || call.op == own_ops::kGrad))
      clears_only_ = false;
    first = first && sets;
    has_grads_ = has_grads_ || own_ops::changes_gradients(call.op);
    if (sets) note(first_argument(call), grad_owners_);
    if (call.op == own_ops::kGrad) {
      has_backward_ = true;
      has_grads_ = has_grads_ || !goes_on;
      each_tensor_of(call.args[own_ops::kLeaves], [&](LogValue input) { note(input, asked_); });
    }
    if (call.op != own_ops::kBackward) continue;
    has_backward_ = adds_to_gradients_ = true;
    each_tensor_of(call.args[own_ops::kLeaves], [&](LogValue leaf) { note(leaf, grad_owners_); });
  }
}

ReachBehind LogProgram::reach(const std::vector<at::Tensor>& inputs) const {
  std::vector<size_t> candidates = asked_;
  if (adds_to_gradients_)
    candidates.insert(candidates.end(), grad_owners_.begin(), grad_owners_.end());
  ReachBehind reach = reach_behind(inputs, candidates);
  reach.others = reach.others && adds_to_gradients_;
  return reach;
}

void LogProgram::keep_reach(const std::vector<at::Tensor>& inputs) {
  if (has_backward_) reach_ = reach(inputs);
}

bool LogProgram::reaches_as_traced(const std::vector<at::Tensor>& inputs) const {
  return !reach_ || reach(inputs) == *reach_;
}

// A run that fails behind a change of an input must not leave that change, as the caller starts
// over.
void LogProgram::find_saved(const OpLog& log, const std::vector<bool>& live,
                            std::span<const LogValue> inputs) {
  const CallLog& plain = log.plain();
  std::vector<int32_t> written;  // memory of inputs
  bool is_needed = false, sets_grads = false;
  for (size_t i = 0; i < live.size(); ++i) {
    if (!live[i]) continue;
    const LoggedCall& call = plain.calls[i];
    if (changes_unseen(*log.real_calls()[i].op)) return;
    const bool has_changed = !written.empty() || sets_grads;
    is_needed = is_needed || (has_changed && may_fail(plain, call));
    sets_grads = sets_grads || own_ops::changes_gradients(call.op);
    for (LogValue value : call.written) {
      const int32_t memory = plain.value(value).memory;
      if (!log.is_input_memory(memory)) continue;
      if (!may_restore(plain, call, value)) return;
      written.push_back(memory);
    }
  }
  // Whether an op fails can't be helped where gradients are part of the program: what was
  // expected can.
  if (!is_needed || (sets_grads && !expects_)) return;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const int32_t memory = plain.value(inputs[i]).memory;
    if (std::find(written.begin(), written.end(), memory) != written.end()) saved_.push_back(i);
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
