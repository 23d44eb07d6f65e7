#include "passes/splitting/narrow_saved.h"

#include <algorithm>
#include <limits>

#include "passes/rewriting/ownership.h"
#include "passes/rewriting/replacements.h"

namespace smelt {
namespace {

// Their only result is 0 or 1.
const OpName kDraws[] = {OpName("aten::bernoulli"), OpName("aten::bernoulli.p"),
                         OpName("aten::bernoulli.Tensor")};
// Their second result are places in the last dimensions of the argument, taken as one.
struct Places {
  OpName op;
  size_t dims;
};
const Places kPlaces[] = {{OpName("aten::max_pool2d_with_indices"), 2},
                          {OpName("aten::max_pool3d_with_indices"), 3},
                          {OpName("aten::adaptive_max_pool2d"), 2},
                          {OpName("aten::adaptive_max_pool3d"), 3}};
const OpName kCast("aten::_to_copy");

struct Narrowing {
  ValueId value = -1;  // none
  DType dtype = DType::b8;
};

Narrowing narrowing_of(const Graph& graph, const Node& node) {
  if (std::ranges::find(kDraws, node.op) != std::end(kDraws))
    return node.results.size() == 1 ? Narrowing{node.results[0], DType::b8} : Narrowing{};
  const auto* const places = std::ranges::find(kPlaces, node.op, &Places::op);
  if (places == std::end(kPlaces) || node.results.size() != 2) return {};
  const Sizes& sizes = graph.type(node.args[0].get<Ref>().id).sizes;
  const auto count = product(std::span(sizes).last(places->dims)).as_known();
  if (!count || *count > std::numeric_limits<int32_t>::max()) return {};
  const bool is_small = *count <= std::numeric_limits<int16_t>::max();
  return {node.results[1], is_small ? DType::i16 : DType::i32};
}

bool is_plain(const TensorType& type) {
  return !type.conj && !type.neg && type.offset.is(0) &&
         type.strides == contiguous_strides(type.sizes);
}

}  // namespace

bool narrow_saved(Graph& joint) {
  const Ownership owners(joint);
  Replacements instead;
  std::vector<Node> nodes;
  for (Node& node : joint.nodes) {
    instead.apply(node);
    nodes.push_back(node);
    const auto [value, narrow] = narrowing_of(joint, node);
    if (value < 0 || owners.escapes[value] || owners.mutated[value]) continue;
    const TensorType type = joint.type(value);
    if (!is_plain(type) || bytes_of(type.dtype) <= bytes_of(narrow)) continue;
    const auto cast = [&](ValueId from, DType dtype) {
      TensorType made = type;
      made.dtype = dtype;
      const auto result = static_cast<ValueId>(joint.values.size());
      joint.values.push_back({.type = made});
      nodes.push_back(
          {kCast, {Ref{from}, dtype, None{}, None{}, None{}, false, None{}}, {result}, {}});
      return result;
    };
    instead.put(value, cast(cast(value, narrow), type.dtype));
  }
  joint.nodes = std::move(nodes);
  if (instead.any()) joint.keep_nodes(std::vector<bool>(joint.nodes.size(), true));
  return instead.any();
}

}  // namespace smelt
