#include "capture/log/opaque_call.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include "capture/log/op_log.h"

namespace smelt {
namespace {

constexpr const char* kName = "smelt::opaque_call";

void run_call(const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack* stack) {
  torch::jit::pop(*stack);  // for whoever writes the call down as ops
  const auto call =
      c10::static_intrusive_pointer_cast<OpaqueCall>(torch::jit::pop(*stack).toCapsule());
  const std::vector<at::Tensor> tensors = torch::jit::pop(*stack).toTensorVector();
  stack->emplace_back(call->run(tensors));
}

c10::FunctionSchema schema() {
  const c10::TypePtr tensors = c10::ListType::ofTensors();
  return {kName,
          "",
          {c10::Argument("tensors", tensors), c10::Argument("call", c10::CapsuleType::get()),
           c10::Argument("uses", tensors)},
          {c10::Argument("", tensors)}};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(smelt, m) {
  m.def(schema());
  // Autograd sees what the call does, not the call.
  m.impl("opaque_call", torch::dispatch(c10::DispatchKey::CompositeImplicitAutograd,
                                        torch::CppFunction::makeFromBoxedFunction<&run_call>()));
}

const OpInfo& opaque_op() {
  static const OpInfo* info = &op_info(c10::Dispatcher::singleton().findSchemaOrThrow(kName, ""));
  return *info;
}

// -- in a log

std::optional<LogItem> OpLog::begin_call(c10::intrusive_ptr<OpaqueCall> call,
                                         const std::vector<at::Tensor>& tensors) {
  LogItem item;
  item.op = &opaque_op();
  if (!take_argument(item, 0, tensors)) return std::nullopt;
  item.arguments.push_back(c10::IValue::make_capsule(std::move(call)));
  item.ambient = ambient();
  return item;
}

bool OpLog::end_call(LogItem item, size_t position, const std::vector<at::Tensor>& results) {
  const auto is_older = [&](LogValue id) {
    return values_[id].kind != LoggedTensor::Kind::result || values_[id].item < position;
  };
  for (size_t i = position; i < items_.size(); ++i) {
    for (LogValue written : items_[i].written) {
      const std::vector<LogValue>& there = in_memory_[values_[written].memory];
      if (!is_older(written) && std::none_of(there.begin(), there.end(), is_older)) continue;
      give_up(OpTrouble::Kind::autograd, "a change of an argument in place");
      return false;
    }
  }
  for (size_t i = position; i < items_.size(); ++i) item.has_effects |= items_[i].has_effects;
  rewind(position);
  LogSlot uses;
  uses.argument = static_cast<uint32_t>(item.arguments.size());
  uses.is_list = true;
  item.slots.push_back(std::move(uses));
  item.arguments.emplace_back();
  if (!keep_results(item, {c10::IValue(results)}, 0)) return false;
  note_effects(item);
  items_.push_back(std::move(item));
  return true;
}

}  // namespace smelt
