#include "capture/log/plain_log.h"

#include <algorithm>

#include "aten/convert.h"

namespace smelt {
namespace {

LoggedValue plain_value(const OpLog& log, size_t id, bool has_type) {
  const LoggedTensor& known = log.values()[id];
  LoggedValue value;
  value.kind = static_cast<LoggedValue::Kind>(known.kind);
  value.memory = known.memory;
  if (has_type) value.type = known.type();
  value.requires_grad = known.requires_grad;
  value.dynamic = known.dynamic;
  if (known.kind == LoggedTensor::Kind::input) {
    const at::Tensor tensor = log.tensor(static_cast<LogValue>(id));
    value.dual = tensor.defined() && tensor._fw_grad(0).defined();
  }
  return value;
}

bool is_made_by(const LoggedTensor& value, size_t item) {
  return value.kind == LoggedTensor::Kind::result && !value.inner && value.item == item;
}

class CallWriter {
 public:
  explicit CallWriter(bool has_literals) : has_literals_(has_literals) {}

  LoggedCall write(const LogItem& item) {
    opaque_ = 0;
    LoggedCall call;
    call.op = item.op->name;
    write_arguments(item, call.args);
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

 private:
  static Arg ref(LogValue value) { return value < 0 ? Arg(None{}) : Arg(Ref{value}); }

  void write_arguments(const LogItem& item, std::vector<Arg>& args) {
    args.resize(item.arguments.size(), Arg(None{}));
    size_t slot = 0;
    for (size_t i = 0; i < item.arguments.size(); ++i) {
      if (slot < item.slots.size() && item.slots[slot].argument == i) {
        args[i] = tensors(item.slots[slot++]);
        continue;
      }
      if (!has_literals_) continue;
      const bool is_taken = std::ranges::any_of(item.scalars, [&](const LogScalar& scalar) {
        return scalar.argument == i && scalar.element < 0;
      });
      // Each run has its own; or no tensor is defined.
      if (is_taken || item.arguments[i].isTensor()) continue;
      args[i] = to_arg(item.arguments[i], item.op->arg_types[i], writer_);
    }
  }

  static Arg tensors(const LogSlot& slot) {
    if (!slot.is_list) return ref(slot.values[0]);
    ArgList list;
    list.reserve(slot.values.size());
    for (const LogValue value : slot.values) list.push_back(ref(value));
    return list;
  }

  const bool has_literals_;
  int32_t opaque_ = 0;
  const ArgWriter writer_{.tensor = [](const at::Tensor&) { return Arg(None{}); },
                          .opaque = [this](const c10::IValue&) { return Arg(Opaque{opaque_++}); }};
};

}  // namespace

CallLog plain_log(const OpLog& log, LogDetail detail) {
  CallLog plain;
  plain.ambients.reserve(log.ambients().size());
  for (const OpAmbient& ambient : log.ambients())
    plain.ambients.push_back({ambient.grad, ambient.inference});
  plain.values.reserve(log.values().size());
  for (size_t id = 0; id < log.values().size(); ++id)
    plain.values.push_back(plain_value(log, id, detail >= LogDetail::types));
  plain.calls.reserve(log.items().size());
  CallWriter writer(detail == LogDetail::all);
  for (const LogItem& item : log.items()) plain.calls.push_back(writer.write(item));
  // What hooks and the forwards of custom functions made is no call's.
  for (size_t i = 0; i < plain.calls.size(); ++i)
    for (const LogValue id : plain.calls[i].results)
      if (id >= 0 && is_made_by(log.values()[id], i))
        plain.values[id].call = static_cast<int32_t>(i);
  for (LoggedValue& value : plain.values)
    value.inner = value.kind == LoggedValue::Kind::result && value.call < 0;
  return plain;
}

}  // namespace smelt
