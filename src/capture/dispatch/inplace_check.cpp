#include "capture/dispatch/inplace_check.h"

#include <ATen/core/Tensor.h>

#include "capture/dispatch/convert.h"
#include "capture/dispatch/each_tensor.h"
#include "capture/dispatch/overlap.h"
#include "capture/dispatch/recorder.h"

namespace smelt {

InplaceCheck::InplaceCheck(Recorder& recorder, const OpInfo& op,
                           const std::vector<c10::IValue>& stack, size_t first)
    : recorder_(recorder), op_(op), casts_before_(recorder.casts()) {
  if (!op.is_mutable) return;
  const auto& arguments = op.handle.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::AliasInfo* alias = arguments[i].alias_info();
    const c10::IValue& value = stack[first + i];
    if (!alias || !alias->isWrite()) continue;
    size_t place = 0;
    each_tensor(value, [&](const at::Tensor& tensor) {
      const size_t here = place++;
      if (!recording_inside(tensor)) return;
      strides_.emplace_back(tensor);
      written_.push_back({tensor, type_of(tensor), here});
    });
  }
  if (written_.empty()) return;
  arguments_.assign(stack.begin() + static_cast<ptrdiff_t>(first), stack.end());
  refuse_tangled_memory();
}

// In eager such an op reads what it has just written, in an order of its own, or raises. The
// functional op reads what was there before.
void InplaceCheck::refuse_tangled_memory() const {
  if (may_reshape()) return;
  const auto storage = [](const at::Tensor& tensor) {
    return tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  };
  for (const Written& target : written_) {
    if (overlaps_itself(target.before, recorder_.symbols())) {
      run_eagerly();
      recorder_.refuse(op_.name.str() + " changes a tensor that shows some elements twice");
    }
    // Lists are worked through one by one, so only the element at the same place may be the same.
    for (const c10::IValue& argument : arguments_) {
      size_t place = 0;
      each_tensor(argument, [&](const at::Tensor& tensor) {
        const bool same_place = !argument.isTensorList() || place++ == target.place;
        if (!recording_inside(tensor) || storage(tensor) != storage(target.tensor)) return;
        const TensorType type = type_of(tensor);
        if (same_place && type == target.before) return;
        if (share_elements(type, target.before, recorder_.symbols()))
          recorder_.refuse(op_.name.str() +
                           " changes a tensor and reads the same memory through another view of "
                           "it; clone() what it reads");
      });
    }
  }
}

bool InplaceCheck::may_reshape() const {
  static const OpName kResize("aten::resize_");
  return op_.handle.hasTag(at::Tag::inplace_view) || op_.name == kResize ||
         op_.name.str().rfind("aten::set_", 0) == 0;
}

bool InplaceCheck::is_doubtful() const {
  // Functionalization casts what a functional op gave to the target's dtype.
  if (recorder_.casts() != casts_before_) return true;
  const bool is_out = op_.handle.schema().overload_name().find("out") != std::string::npos;
  if (is_out || may_reshape()) return false;
  for (const Written& target : written_)
    if (to_sizes(target.tensor.sym_sizes()) != target.before.sizes) return true;
  return false;
}

TensorType InplaceCheck::type_before(const at::Tensor& tensor) const {
  for (const Written& target : written_)
    if (target.tensor.is_same(tensor)) return target.before;
  return type_of(tensor);
}

void InplaceCheck::after() const {
  if (written_.empty()) return;
  if (is_doubtful()) run_eagerly();
  for (const StridesBefore& strides : strides_) strides.restore();
}

void InplaceCheck::run_eagerly() const {
  std::vector<c10::IValue> opaque;
  Call call{op_, {}, {}, opaque, {}};
  const ArgWriter writer{
      .tensor =
          [&](const at::Tensor& tensor) {
            if (tensor.unsafeGetTensorImpl()->is_wrapped_number() && !recording_inside(tensor))
              return to_arg(c10::IValue(recorder_.number_in(tensor)), c10::NumberType::get(), {});
            call.types.push_back(type_before(tensor));
            return Arg(Ref{static_cast<int32_t>(call.types.size() - 1)});
          },
      .number =
          [&](const RecordedNumber& number) {
            call.types.push_back(numbers::type_of(number.dtype));
            const auto place = static_cast<int32_t>(call.types.size() - 1);
            call.numbers.emplace(place, recorder_.example_of(number.value));
            return Arg(Ref{place});
          },
      .opaque =
          [&](const c10::IValue& value) {
            opaque.push_back(value);
            return Arg(Opaque{static_cast<int32_t>(opaque.size() - 1)});
          }};
  for (size_t i = 0; i < arguments_.size(); ++i)
    call.args.push_back(to_arg(arguments_[i], op_.arg_types[i], writer));
  recorder_.try_eagerly(call);
}

}  // namespace smelt
