#include "capture/dispatch/inplace_check.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <string_view>

#include "aten/convert.h"
#include "aten/each_tensor.h"
#include "aten/overlap.h"
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
    const bool is_expanded = [&] {
      if (target.before.numel().is(0)) return false;
      for (int d = 0; d < target.before.rank(); ++d)
        if (target.before.strides[d].is(0) && !target.before.sizes[d].is(1)) return true;
      return false;
    }();
    if (is_expanded)
      recorder_.fail_in_place(
          "unsupported operation: more than one element of the written-to tensor refers to a "
          "single memory location. Please clone() the tensor before performing the operation.");
    if (overlaps_itself(target.before, recorder_.symbols()))
      recorder_.refuse(op_.name.str() + " changes a tensor that shows some elements twice");
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
  return op_.handle.hasTag(at::Tag::inplace_view) || op_.facts.resizes || op_.facts.sets_storage;
}

// Functionalization casts what a functional op gave to the target's dtype, also where eager does
// not, and lets a target grow.
void InplaceCheck::raise_as_eager() const {
  const bool is_out = std::ranges::any_of(op_.handle.schema().arguments(), &c10::Argument::is_out);
  for (const Written& target : written_) {
    if (is_out || may_reshape()) break;
    const Sizes sizes = to_sizes(target.tensor.sym_sizes());
    if (sizes != target.before.sizes)
      recorder_.fail_in_place("output with shape " + str(target.before.sizes) +
                              " doesn't match the broadcast shape " + str(sizes));
  }
  if (recorder_.casts() == casts_before_ || op_.facts.converts_to_target) return;
  const auto& [from, to] = *recorder_.last_cast();
  if (std::ranges::none_of(written_, [&](const Written& w) { return w.before.dtype == to; }))
    return;
  if (!op_.facts.fits_target_only && c10::canCast(to_scalar_type(from), to_scalar_type(to))) return;
  recorder_.fail_in_place(c10::str("result type ", to_scalar_type(from),
                                   " can't be cast to the desired output type ",
                                   to_scalar_type(to)));
}

void InplaceCheck::after() const {
  if (written_.empty()) return;
  if (!recorder_.is_replay()) raise_as_eager();
  for (const StridesBefore& strides : strides_) strides.restore();
}

}  // namespace smelt
