#include "capture/dispatch/inplace_check.h"

#include <ATen/core/Tensor.h>

#include "capture/dispatch/convert.h"
#include "capture/dispatch/recorder.h"

namespace smelt {

InplaceCheck::InplaceCheck(const OpInfo& op, const std::vector<c10::IValue>& stack, size_t first)
    : op_(op) {
  if (!op.is_mutable) return;
  const auto& arguments = op.handle.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::AliasInfo* alias = arguments[i].alias_info();
    const c10::IValue& value = stack[first + i];
    if (alias && alias->isWrite() && value.isTensor() && recording_inside(value.toTensor()))
      written_.push_back({value.toTensor(), type_of(value.toTensor())});
  }
  if (!written_.empty())
    arguments_.assign(stack.begin() + static_cast<ptrdiff_t>(first), stack.end());
}

bool InplaceCheck::is_doubtful(const Recorder& recorder) const {
  static const OpName kResize("aten::resize_");
  const std::string& overload = op_.handle.schema().overload_name();
  const bool may_reshape = op_.handle.hasTag(at::Tag::inplace_view) || op_.name == kResize ||
                           overload.find("out") != std::string::npos ||
                           op_.name.str().rfind("aten::set_", 0) == 0;
  for (const Written& target : written_) {
    if (!may_reshape && to_sizes(target.tensor.sym_sizes()) != target.before.sizes) return true;
    if (!recorder.last_dtypes().empty() && recorder.last_dtypes().front() != target.before.dtype)
      return true;
  }
  return false;
}

TensorType InplaceCheck::type_before(const at::Tensor& tensor) const {
  for (const Written& target : written_)
    if (target.tensor.is_same(tensor)) return target.before;
  return type_of(tensor);
}

void InplaceCheck::after(Recorder& recorder) const {
  if (written_.empty() || !is_doubtful(recorder)) return;
  std::vector<c10::IValue> opaque;
  Call call{op_, {}, {}, opaque};
  const ArgWriter writer{.tensor =
                             [&](const at::Tensor& tensor) {
                               call.types.push_back(type_before(tensor));
                               call.types.back().wrapped_number = false;
                               return Arg(Ref{static_cast<int32_t>(call.types.size() - 1)});
                             },
                         .opaque =
                             [&](const c10::IValue& value) {
                               opaque.push_back(value);
                               return Arg(Opaque{static_cast<int32_t>(opaque.size() - 1)});
                             }};
  for (size_t i = 0; i < arguments_.size(); ++i)
    call.args.push_back(to_arg(arguments_[i], op_.arg_types[i], writer));
  recorder.try_eagerly(call);
}

}  // namespace smelt
