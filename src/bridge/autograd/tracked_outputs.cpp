#include "bridge/autograd/tracked_outputs.h"

#include <algorithm>

#include "capture/log/grad_ops.h"

namespace smelt {

TrackedOutputs tracked_outputs(const OpLog& log, std::span<const LogValue> outputs) {
  TrackedOutputs tracked;
  for (const LogValue output : outputs)
    if (log.plain().is_tracked(output)) tracked.values.push_back(output);
  for (const LogValue output : tracked.values) {
    const at::Tensor tensor = log.tensor(output);
    const int32_t call = log.plain().value(output).call;
    const auto is_computed_from_it = [&](LogValue other) {
      if (other == output || log.plain().value(other).call != call) return false;
      if (!tensor.defined() || !log.tensor(other).defined()) return true;  // gone: nothing tells
      if (log.tensor(other).grad_fn() == tensor.grad_fn()) return false;
      const std::vector<NodePtr> nodes = reach_of({log.tensor(other)}).nodes;
      return std::ranges::find(nodes, tensor.grad_fn()) != nodes.end();
    };
    if (std::ranges::any_of(tracked.values, is_computed_from_it)) tracked.entangled.push_back(call);
  }
  return tracked;
}

}  // namespace smelt
