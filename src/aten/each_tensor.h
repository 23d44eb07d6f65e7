// Walks the tensors of an IValue: a tensor, a list of tensors, a list of optional tensors.
#pragma once

#include <ATen/core/List.h>
#include <ATen/core/ivalue.h>

namespace smelt {

// Replaces each defined tensor by what `map` returns for it; untouched if it returns the same
// tensors.
template <class Map>
void map_tensors(c10::IValue& value, const Map& map) {
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    if (!tensor.defined()) return;
    at::Tensor mapped = map(tensor);
    if (!mapped.is_same(tensor)) value = std::move(mapped);
  } else if (value.isTensorList()) {
    std::vector<at::Tensor> list = value.toTensorVector();
    bool changed = false;
    for (at::Tensor& tensor : list) {
      if (!tensor.defined()) continue;
      at::Tensor mapped = map(tensor);
      changed |= !mapped.is_same(tensor);
      tensor = std::move(mapped);
    }
    if (changed) value = std::move(list);
  } else if (value.isOptionalTensorList()) {
    auto list = value.toOptionalTensorVector();
    bool changed = false;
    for (std::optional<at::Tensor>& tensor : list) {
      if (!tensor || !tensor->defined()) continue;
      at::Tensor mapped = map(*tensor);
      changed |= !mapped.is_same(*tensor);
      tensor = std::move(mapped);
    }
    if (changed) value = c10::List<std::optional<at::Tensor>>(std::move(list));
  }
}

// Calls `visit` on each defined tensor.
template <class Visit>
void each_tensor(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector())
      if (tensor.defined()) visit(tensor);
  } else if (value.isOptionalTensorList()) {
    for (const auto& tensor : value.toOptionalTensorVector())
      if (tensor && tensor->defined()) visit(*tensor);
  }
}

}  // namespace smelt
