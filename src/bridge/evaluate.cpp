#include "bridge/evaluate.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <unordered_map>

#include "aten/convert.h"
#include "aten/digest.h"
#include "aten/find_op.h"
#include "aten/op_info.h"
#include "capture/dispatch/shapes.h"
#include "graph/numbers.h"

namespace smelt {

std::optional<std::vector<FoldedConstant>> evaluate_node(const Graph& graph, const Node& node,
                                                         const std::vector<c10::IValue>& opaque) {
  if (numbers::is_number_op(node.op) || numbers::takes_number(graph, node)) return std::nullopt;
  if (default_dtype() != graph.default_float) return std::nullopt;
  std::unordered_map<ValueId, at::Tensor> constants;
  for (const Constant& constant : graph.constants)
    constants.emplace(constant.value, *static_cast<const at::Tensor*>(constant.data.get()));
  const ArgReader reader{.tensor = [&](Ref ref) { return constants.at(ref.id); },
                         .number = {},
                         .opaque = [&](Opaque index) { return opaque[index.index]; },
                         .size = [](const Size& size) { return size.known(); }};
  const c10::OperatorHandle handle = find_op(node.op.str());
  const OpInfo& op = op_info(handle);
  c10::impl::ExcludeDispatchKeyGuard plain(recording_keys());
  at::AutoGradMode grad(node.traits.grad);
  torch::jit::Stack stack;
  try {
    for (size_t i = 0; i < node.args.size(); ++i)
      stack.push_back(to_ivalue(node.args[i], op.arg_types[i], reader));
    handle.callBoxed(&stack);
  } catch (const std::exception&) {
    return std::nullopt;
  }
  std::vector<FoldedConstant> folded;
  for (const c10::IValue& value : stack) {
    if (!value.isTensor() || !value.toTensor().defined()) return std::nullopt;
    const at::Tensor& tensor = value.toTensor();
    folded.push_back({type_of(tensor), std::make_shared<at::Tensor>(tensor), digest_of(tensor)});
  }
  return folded;
}

}  // namespace smelt
