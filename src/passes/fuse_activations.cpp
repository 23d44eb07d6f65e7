// An activation behind a packed convolution is computed by the library where the convolution's
// results are in registers, instead of in another pass over memory. Only such as oneDNN computes
// like eager: its relu and its hardtanh make 0 of a NaN, so that those stay what they are, kernels
// that work in the convolution's memory.

#include "passes/passes.h"
#include "passes/rewriting/node_writer.h"
#include "passes/rewriting/replacements.h"

namespace smelt {
namespace {

// Where the activation stands among the arguments of a packed convolution, the first of three; 0
// for any other op.
size_t attribute_of(const OpName& op) {
  static const OpName convolution("mkldnn::_convolution_pointwise");
  static const OpName transposed("mkldnn::_convolution_transpose_pointwise");
  return op == convolution ? 7 : op == transposed ? 8 : 0;
}

struct Activation {
  OpName op;
  std::string attribute;
  bool has_slope = false;
  bool has_algorithm = false;
};

const Activation* find_activation(const Node& node) {
  static const std::vector<Activation> activations = {
      {OpName("aten::gelu"), "gelu", false, true},
      {OpName("aten::hardswish"), "hardswish"},
      {OpName("aten::leaky_relu"), "leaky_relu", true},
      {OpName("aten::sigmoid"), "sigmoid"},
      {OpName("aten::silu"), "swish"},
      {OpName("aten::tanh"), "tanh"},
  };
  for (const Activation& activation : activations)
    if (node.op == activation.op) return &activation;
  return nullptr;
}

// With a slope of 0 it is a relu.
bool is_usual(const Node& node, const Activation& activation) {
  return !activation.has_slope || (node.args[1].is<double>() && node.args[1].get<double>() > 0);
}

}  // namespace

bool fuse_activations(Graph& graph, const PassOptions& options) {
  if (options.frozen.empty()) return false;
  const std::vector<int32_t> uses = graph.use_counts();
  std::vector<Node> nodes = std::move(graph.nodes);
  NodeWriter writer(graph);
  Replacements replacements;
  for (Node& node : nodes) {
    replacements.apply(node);
    const Activation* activation = find_activation(node);
    const ValueId value = activation ? node.args[0].get<Ref>().id : -1;
    const Node* product = activation && is_usual(node, *activation) ? writer.maker(value) : nullptr;
    const size_t attribute = product ? attribute_of(product->op) : 0;
    if (attribute == 0 || uses[value] != 1 ||
        product->args[attribute] != Arg(std::string("none")) ||
        graph.type(value) != graph.type(node.results[0])) {
      writer.keep(std::move(node));
      continue;
    }
    Node fused = *product;
    fused.args[attribute] = activation->attribute;
    if (activation->has_slope) fused.args[attribute + 1] = ArgList{node.args[1]};
    if (activation->has_algorithm) fused.args[attribute + 2] = node.args[1];
    fused.results = node.results;
    writer.drop(product);
    writer.keep(std::move(fused));
  }
  writer.finish();
  return graph.nodes.size() != nodes.size();
}

}  // namespace smelt
