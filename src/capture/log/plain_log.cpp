#include "capture/log/plain_log.h"

#include <algorithm>

#include "aten/convert.h"

namespace smelt {
namespace {

LoggedValue plain_value(const OpLog& log, size_t id) {
  const LoggedTensor& known = log.values()[id];
  LoggedValue value;
  value.kind = static_cast<LoggedValue::Kind>(known.kind);
  value.memory = known.memory;
  value.requires_grad = known.requires_grad;
  value.dynamic = known.dynamic;
  return value;
}

bool is_made_by(const LoggedTensor& value, size_t item) {
  return value.kind == LoggedTensor::Kind::result && !value.inner && value.item == item;
}

Arg ref(LogValue value) { return value < 0 ? Arg(None{}) : Arg(Ref{value}); }

Arg tensors_in(const LogSlot& slot) {
  if (!slot.is_list) return ref(slot.values[0]);
  ArgList list;
  list.reserve(slot.values.size());
  for (const LogValue value : slot.values) list.push_back(ref(value));
  return list;
}

LoggedCall plain_call(const LogItem& item) {
  LoggedCall call;
  call.op = item.op->name;
  call.args.resize(item.arguments.size(), Arg(None{}));
  for (const LogSlot& slot : item.slots) call.args[slot.argument] = tensors_in(slot);
  for (const LogScalar& scalar : item.scalars)
    call.takes.push_back({scalar.argument, scalar.element, scalar.is_tensor, scalar.id});
  call.results = item.results;
  call.written = item.written;
  call.ambient = item.ambient;
  call.number = item.number;
  call.recomputed = item.recomputed;
  call.effect = item.op->traits.effect;
  call.random = item.random;
  call.sized = item.sized;
  call.expected = item.expected;
  call.has_effects = item.has_effects;
  call.calls_back = item.applies_function;
  return call;
}

// Each run has its own; or no tensor is defined.
bool has_no_literal(const LogItem& item, size_t argument) {
  return item.arguments[argument].isTensor() ||
         std::ranges::any_of(item.slots,
                             [&](const LogSlot& slot) { return slot.argument == argument; }) ||
         std::ranges::any_of(item.scalars, [&](const LogScalar& scalar) {
           return scalar.argument == argument && scalar.element < 0;
         });
}

}  // namespace

CallLog plain_log(const OpLog& log) {
  CallLog plain;
  plain.ambients.reserve(log.ambients().size());
  for (const OpAmbient& ambient : log.ambients())
    plain.ambients.push_back({ambient.grad, ambient.inference});
  plain.values.reserve(log.values().size());
  for (size_t id = 0; id < log.values().size(); ++id) plain.values.push_back(plain_value(log, id));
  plain.calls.reserve(log.items().size());
  for (const LogItem& item : log.items()) plain.calls.push_back(plain_call(item));
  // What hooks and the forwards of custom functions made is no call's.
  for (size_t i = 0; i < plain.calls.size(); ++i)
    for (const LogValue id : plain.calls[i].results)
      if (id >= 0 && is_made_by(log.values()[id], i))
        plain.values[id].call = static_cast<int32_t>(i);
  for (LoggedValue& value : plain.values)
    value.inner = value.kind == LoggedValue::Kind::result && value.call < 0;
  return plain;
}

void add_types(CallLog& plain, const OpLog& log) {
  for (size_t id = 0; id < plain.values.size(); ++id) {
    LoggedValue& value = plain.values[id];
    value.type = log.values()[id].type();
    if (value.kind != LoggedValue::Kind::input) continue;
    const at::Tensor tensor = log.tensor(static_cast<LogValue>(id));
    value.dual = tensor.defined() && tensor._fw_grad(0).defined();
  }
}

void add_literals(CallLog& plain, const OpLog& log) {
  for (size_t i = 0; i < plain.calls.size(); ++i) {
    const LogItem& item = log.items()[i];
    int32_t opaque = 0;
    const ArgWriter writer{.tensor = [](const at::Tensor&) { return Arg(None{}); },
                           .opaque = [&](const c10::IValue&) { return Arg(Opaque{opaque++}); }};
    for (size_t k = 0; k < item.arguments.size(); ++k)
      if (!has_no_literal(item, k))
        plain.calls[i].args[k] = to_arg(item.arguments[k], item.op->arg_types[k], writer);
  }
}

}  // namespace smelt
