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

std::optional<OpenCall> OpLog::begin_call(c10::intrusive_ptr<OpaqueCall> code,
                                          const std::vector<at::Tensor>& tensors) {
  OpenCall call = open(opaque_op());
  if (!take_arguments(call, {tensors})) return std::nullopt;
  call.plain.args.emplace_back(Opaque{0});
  call.real.opaque.push_back(c10::IValue::make_capsule(std::move(code)));
  call.plain.ambient = ambient();
  return call;
}

bool OpLog::end_call(OpenCall call, size_t position, const std::vector<at::Tensor>& results) {
  // What is known to nobody has been made since.
  const auto is_older = [&](LogValue id) {
    const LoggedValue& value = plain_.value(id);
    return !value.inner && value.call < static_cast<int32_t>(position);
  };
  for (size_t i = position; i < plain_.calls.size(); ++i) {
    for (LogValue written : plain_.calls[i].written) {
      const std::vector<LogValue>& there = memory_.values_on(plain_.value(written).memory);
      if (!is_older(written) && std::none_of(there.begin(), there.end(), is_older)) continue;
      give_up(OpTrouble::Kind::autograd, "a change of an argument in place");
      return false;
    }
  }
  for (size_t i = position; i < plain_.calls.size(); ++i)
    call.plain.has_effects |= plain_.calls[i].has_effects;
  rewind(position);
  call.plain.args.emplace_back(ArgList());
  if (!keep_results(call.plain, {c10::IValue(results)}, 0)) return false;
  note_effects(call.plain);
  close(std::move(call));
  return true;
}

}  // namespace smelt
