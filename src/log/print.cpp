// The text form of a log; parse.cpp reads it. One line for each ambient, input, constant and call:
//
//   log {
//     ambient grad
//     ambient no_grad
//     input %0: f32[2, 3] memory 1 requires_grad
//     const %1: f32[] memory 2
//     inner %9: f32[2] memory 7
//     %2: f32[2, 3] memory 3 requires_grad = aten::mul.Tensor(%0, %1)
//     %2 = aten::add_.Scalar(%2, 1, 1) writes (%2) takes (s0 at 1) ambient 1
//     %3: ? memory 0, _ = mine::op(%2, [%0, none]) random has_effects
//     return (%2, none)
//   }
//
// A value has its type and its traits where it is made; "?" is a type that no graph has. An ambient
// of 0 is left out.
#include "base/reader.h"
#include "log/call_log.h"

namespace smelt {
namespace {

std::string ref(LogValue id) { return id < 0 ? "none" : "%" + std::to_string(id); }

std::string definition(const CallLog& log, LogValue id) {
  const LoggedValue& value = log.value(id);
  std::string text = ref(id) + ": " + (value.type ? value.type->str() : "?");
  text += " memory " + std::to_string(value.memory);
  if (value.requires_grad) text += " requires_grad";
  if (value.dynamic) text += " dynamic";
  if (value.dual) text += " dual";
  if (value.retains_grad) text += " retains_grad";
  if (value.apart) text += " apart";
  return text;
}

std::string list(const std::vector<LogValue>& ids) {
  std::string text;
  for (const LogValue id : ids) text += (text.empty() ? "" : ", ") + ref(id);
  return "(" + text + ")";
}

std::string str(const TakenNumber& number) {
  std::string text = "s" + std::to_string(number.id) + " at " + std::to_string(number.argument);
  if (number.element >= 0) text += " element " + std::to_string(number.element);
  if (number.is_tensor) text += " tensor";
  return text;
}

std::string traits(const LoggedCall& call) {
  std::string text;
  if (!call.written.empty()) text += " writes " + list(call.written);
  if (!call.takes.empty()) {
    std::string numbers;
    for (const TakenNumber& number : call.takes)
      numbers += (numbers.empty() ? "" : ", ") + str(number);
    text += " takes (" + numbers + ")";
  }
  if (!call.rises.empty()) {
    std::string rises;
    for (const VersionRise& rise : call.rises)
      rises += (rises.empty() ? "" : ", ") + ref(rise.value) + " by " + std::to_string(rise.by);
    text += " rises (" + rises + ")";
  }
  const auto count = [&](const char* name, int32_t number, int32_t usual) {
    if (number != usual) text += std::string(" ") + name + " " + std::to_string(number);
  };
  count("ambient", call.ambient, 0);
  count("number", call.number, -1);
  if (!call.given.is_none()) text += " gives " + smelt::str(call.given);
  count("recomputed", call.recomputed, 0);
  if (call.effect) text += " effect";
  if (call.random) text += " random";
  if (call.sized) text += " sized";
  if (call.expected) text += " expected";
  if (call.has_effects) text += " has_effects";
  if (call.calls_back) text += " calls_back";
  if (call.registers_hook) text += " registers_hook";
  if (call.counts) text += " counts";
  return text;
}

std::string line(const CallLog& log, size_t index) {
  const LoggedCall& call = log.calls[index];
  std::string text;
  for (const LogValue id : call.results) {
    if (!text.empty()) text += ", ";
    if (id < 0)
      text += "_";
    else
      text += log.value(id).call == static_cast<int32_t>(index) ? definition(log, id) : ref(id);
  }
  if (!text.empty()) text += " = ";
  text += call.op.str() + "(";
  for (size_t i = 0; i < call.args.size(); ++i) text += (i ? ", " : "") + smelt::str(call.args[i]);
  return text + ")" + traits(call);
}

std::string_view name_of(const LogAmbient& ambient) {
  return ambient.inference ? "inference" : ambient.grad ? "grad" : "no_grad";
}

}  // namespace

std::string CallLog::str() const {
  using Kind = LoggedValue::Kind;
  std::string text = "log {\n";
  for (const LogAmbient& ambient : ambients)
    text += "  ambient " + std::string(name_of(ambient)) + "\n";
  for (size_t i = 0; i < values.size(); ++i) {
    const auto id = static_cast<LogValue>(i);
    if (values[i].kind == Kind::result && !values[i].inner) continue;
    const char* kind = values[i].inner                 ? "inner"
                       : values[i].kind == Kind::input ? "input"
                                                       : "const";
    text += std::string("  ") + kind + " " + definition(*this, id) + "\n";
  }
  for (size_t i = 0; i < calls.size(); ++i) text += "  " + line(*this, i) + "\n";
  return text + "  return " + list(outputs) + "\n}\n";
}

}  // namespace smelt
