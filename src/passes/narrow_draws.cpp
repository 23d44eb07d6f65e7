#include "passes/narrow_draws.h"

#include <algorithm>

#include "passes/ownership.h"
#include "passes/replacements.h"

namespace smelt {
namespace {

// Their only result is 0 or 1.
const OpName kDraws[] = {OpName("aten::bernoulli"), OpName("aten::bernoulli.p"),
                         OpName("aten::bernoulli.Tensor")};
const OpName kCast("aten::_to_copy");

bool is_plain(const TensorType& type) {
  return bytes_of(type.dtype) > 1 && !type.conj && !type.neg && type.offset.is(0) &&
         type.strides == contiguous_strides(type.sizes);
}

}  // namespace

bool narrow_draws(Graph& joint) {
  const Ownership owners(joint);
  Replacements instead;
  std::vector<Node> nodes;
  for (Node& node : joint.nodes) {
    instead.apply(node);
    nodes.push_back(node);
    if (std::ranges::find(kDraws, node.op) == std::end(kDraws) || node.results.size() != 1 ||
        node.results[0] < 0)
      continue;
    const ValueId draw = node.results[0];
    const TensorType type = joint.type(draw);
    if (!is_plain(type) || owners.escapes[draw] || owners.mutated[draw]) continue;
    const auto cast = [&](ValueId value, DType dtype) {
      TensorType made = type;
      made.dtype = dtype;
      const auto result = static_cast<ValueId>(joint.values.size());
      joint.values.push_back({.type = made});
      nodes.push_back(
          {kCast, {Ref{value}, dtype, None{}, None{}, None{}, false, None{}}, {result}, {}});
      return result;
    };
    instead.put(draw, cast(cast(draw, DType::b8), type.dtype));
  }
  joint.nodes = std::move(nodes);
  if (instead.any()) joint.keep_nodes(std::vector<bool>(joint.nodes.size(), true));
  return instead.any();
}

}  // namespace smelt
