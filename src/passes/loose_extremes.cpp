// The greatest of 0 and -0 depends on the order in which it is looked for, and PyTorch's depends on
// sizes, strides and threads. Where the program can tell the two apart, PyTorch is asked. It can't
// where the extreme is only compared, goes into an exponential, or is one of elements of which none
// is -0: softmax by hand, scales of quantization. Those nodes are marked here, and kernels compute
// them. Stands before decompose, whose own extremes are marked as they are written.

#include <algorithm>

#include "passes/passes.h"

namespace smelt {
namespace {

bool is_one_of(OpName op, std::span<const OpName> ops) {
  return std::ranges::find(ops, op) != ops.end();
}

bool is_extreme(OpName op) {
  static const OpName ops[] = {OpName("aten::amax"),
                               OpName("aten::amin"),
                               OpName("aten::max"),
                               OpName("aten::min"),
                               OpName("aten::max.dim"),
                               OpName("aten::min.dim"),
                               OpName("aten::aminmax"),
                               OpName("aten::max_pool2d_with_indices"),
                               OpName("aten::max_pool3d_with_indices"),
                               OpName("aten::adaptive_max_pool2d"),
                               OpName("aten::adaptive_max_pool3d")};
  return is_one_of(op, ops);
}

// They give the same for 0 and for -0.
bool forgets_sign(OpName op) {
  static const OpName ops[] = {OpName("aten::_softmax"), OpName("aten::abs"),
                               OpName("aten::cos"),      OpName("aten::cosh"),
                               OpName("aten::exp"),      OpName("aten::exp2"),
                               OpName("aten::sigmoid"),  OpName("aten::softplus")};
  return is_one_of(op, ops);
}

// They give no -0.
bool gives_no_negative_zero(OpName op) {
  static const OpName ops[] = {OpName("aten::_softmax"), OpName("aten::abs"),
                               OpName("aten::exp"),      OpName("aten::exp2"),
                               OpName("aten::rand"),     OpName("aten::sigmoid"),
                               OpName("aten::square"),   OpName("aten::linalg_vector_norm")};
  return is_one_of(op, ops);
}

// Ops that make a truth or an integer of floats look at the sign bit itself in no other way.
bool reads_sign_bit(OpName op) {
  static const OpName ops[] = {OpName("aten::signbit"), OpName("aten::view.dtype")};
  return is_one_of(op, ops);
}

// By value: can anybody tell whether a zero in it is 0 or -0?
std::vector<bool> seen_signs(const Graph& graph) {
  std::vector<bool> seen(graph.values.size());
  for (const ValueId output : graph.outputs)
    if (output >= 0) seen[output] = true;
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    const bool shows = std::ranges::any_of(node.results, [&](ValueId result) {
      return result >= 0 && seen[result] &&
             (is_floating(graph.type(result).dtype) || is_complex(graph.type(result).dtype));
    });
    if (node.traits.is_pure() && !reads_sign_bit(node.op) && (!shows || forgets_sign(node.op)))
      continue;
    for (const Arg& arg : node.args)
      each_ref(arg, [&](Ref ref) {
        if (ref.id >= 0) seen[ref.id] = true;
      });
  }
  return seen;
}

// Is none of its elements -0?
bool has_no_negative_zero(const Graph& graph, ValueId value) {
  const NodeId maker = graph.values[value].node;
  if (maker < 0) return false;
  const Node& node = graph.nodes[maker];
  if (node.traits.view && node.traits.is_pure() && !node.args.empty() && node.args[0].is<Ref>() &&
      !reads_sign_bit(node.op))
    return has_no_negative_zero(graph, node.args[0].get<Ref>().id);
  return gives_no_negative_zero(node.op);
}

}  // namespace

bool loose_extremes(Graph& graph, const PassOptions& options) {
  if (!options.has_kernels) return false;
  if (std::ranges::none_of(graph.nodes, [](const Node& node) { return is_extreme(node.op); }))
    return false;
  const std::vector<bool> seen = seen_signs(graph);
  bool changed = false;
  for (Node& node : graph.nodes) {
    if (!is_extreme(node.op) || node.traits.loose || !node.args[0].is<Ref>()) continue;
    const bool is_seen = std::ranges::any_of(
        node.results, [&](ValueId result) { return result >= 0 && seen[result]; });
    if (!is_floating(graph.type(node.args[0].get<Ref>().id).dtype)) continue;
    if (is_seen && !has_no_negative_zero(graph, node.args[0].get<Ref>().id)) continue;
    node.traits.loose = changed = true;
  }
  return changed;
}

}  // namespace smelt
