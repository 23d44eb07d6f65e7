// A product by frozen weights that is scaled or shifted per channel by frozen values, as a product
// by other weights: batch norm behind a convolution or a linear layer, a layer scale, q * 0.125.
// What computes the new weights is frozen itself, so that split_frozen.h takes it out of the graph.
//
// Stands after decompose, which writes a batch norm of running statistics as one multiplication and
// one addition. Of f16 and bf16 nothing is folded: the weights would be rounded once more.

#include <algorithm>

#include "ops/rules/layout.h"
#include "passes/passes.h"
#include "passes/rewriting/frozen_values.h"
#include "passes/rewriting/node_writer.h"
#include "passes/rewriting/replacements.h"

namespace smelt {
namespace {

const OpName kConvolution("aten::convolution");
const OpName kMm("aten::mm");
const OpName kAddmm("aten::addmm");
const OpName kMul("aten::mul.Tensor");
const OpName kAdd("aten::add.Tensor");

constexpr size_t kTransposed = 6, kGroups = 8;  // of convolution's arguments

class Folder {
 public:
  Folder(Graph& graph, const std::vector<bool>& frozen)
      : graph_(graph),
        frozen_(frozen_values(graph, frozen)),
        uses_(graph.use_counts()),
        writer_(graph) {}

  bool run() {
    std::vector<Node> nodes = std::move(graph_.nodes);
    for (Node& node : nodes) {
      replacements_.apply(node);
      if (!fold(node)) writer_.keep(std::move(node));
    }
    replacements_.apply(graph_.outputs);
    writer_.finish();
    return replacements_.any();
  }

 private:
  static size_t weight_at(const Node& product) { return product.op == kAddmm ? 2 : 1; }
  // Where the bias stands; -1 if the op takes none.
  static int bias_at(const Node& product) {
    return product.op == kConvolution ? 2 : product.op == kAddmm ? 0 : -1;
  }
  bool has_bias(const Node& product) const {
    return bias_at(product) >= 0 && !product.args[bias_at(product)].is_none();
  }

  bool fold(const Node& node) {
    const bool scales = node.op == kMul;
    if (!scales && !(node.op == kAdd && node.args[2] == Arg(1))) return false;
    return fold(node, 0, 1, scales) || fold(node, 1, 0, scales);
  }

  bool fold(const Node& node, size_t product_at, size_t factor_at, bool scales) {
    const Node* found = foldable(node, node.args[product_at]);
    if (!found) return false;
    const Node product = *found;
    const Arg& factor = node.args[factor_at];
    const NodeWriter::Mark before = writer_.mark();
    const std::optional<Node> folded = scales ? scaled(product, factor) : shifted(product, factor);
    if (!folded) {
      writer_.forget_since(before);
      frozen_.resize(std::min(frozen_.size(), before.values));
      return false;
    }
    const ValueId old = product.results[0];
    const ValueId made = writer_.call(folded->op.str(), folded->args, graph_.type(old));
    writer_.drop(writer_.maker(old));
    replacements_.put(node.results[0], made);
    uses_.resize(graph_.values.size());
    uses_[made] = uses_[node.results[0]];
    return true;
  }

  // The product that the argument is, if nobody else reads it and its weights are frozen.
  const Node* foldable(const Node& reader, const Arg& arg) const {
    if (!arg.is<Ref>() || uses_[arg.get<Ref>().id] != 1) return nullptr;
    const Node* node = writer_.maker(arg.get<Ref>().id);
    if (!node || (node->op != kConvolution && node->op != kMm && node->op != kAddmm))
      return nullptr;
    const TensorType& type = graph_.type(node->results[0]);
    if (type != graph_.type(reader.results[0]) ||
        (type.dtype != DType::f32 && type.dtype != DType::f64))
      return nullptr;
    if (!is_frozen(frozen_, node->args[weight_at(*node)])) return nullptr;
    if (has_bias(*node) && !is_frozen(frozen_, node->args[bias_at(*node)])) return nullptr;
    if (node->op == kAddmm && (node->args[3] != Arg(1) || node->args[4] != Arg(1) ||
                               graph_.type(node->args[0].get<Ref>().id).rank() != 1))
      return nullptr;
    return node;
  }

  // The product with weights and bias multiplied.
  std::optional<Node> scaled(Node product, const Arg& factor) {
    Arg along = factor;
    if (!factor.is_number()) {
      const ValueId channels = channel_vector(product, factor);
      if (channels < 0) return std::nullopt;
      along = Ref{channels};
    }
    const ValueId changed = scaled_weights(product, along);
    if (changed < 0) return std::nullopt;
    product.args[weight_at(product)] = Ref{changed};
    if (!has_bias(product)) return product;
    Arg& bias = product.args[bias_at(product)];
    const ValueId moved = frozen_call("aten::mul.Tensor", {bias, along});
    if (moved < 0) return std::nullopt;
    bias = Ref{moved};
    return product;
  }

  // The product with a bias that is so much more.
  std::optional<Node> shifted(Node product, const Arg& shift) {
    ValueId bias = channel_vector(product, shift);
    if (bias < 0) return std::nullopt;
    if (has_bias(product)) {
      bias = frozen_call("aten::add.Tensor", {product.args[bias_at(product)], Ref{bias}, 1});
      if (bias < 0) return std::nullopt;
    }
    if (product.op == kMm) {
      product.op = kAddmm;
      product.args = {Ref{bias}, product.args[0], product.args[1], 1, 1};
    } else {
      product.args[bias_at(product)] = Ref{bias};
    }
    return product;
  }

  // The frozen argument as a vector over the channels of the product, if that is what it is.
  ValueId channel_vector(const Node& product, const Arg& arg) {
    if (!is_frozen(frozen_, arg)) return -1;
    const TensorType& result = graph_.type(product.results[0]);
    const TensorType type = graph_.type(arg.get<Ref>().id);
    const int channels = product.op == kConvolution ? 1 : result.rank() - 1;
    const int at = channels - (result.rank() - type.rank());
    if (at < 0 || type.rank() > result.rank() || type.dtype != result.dtype) return -1;
    for (int d = 0; d < type.rank(); ++d)
      if (d == at ? type.sizes[d] != result.sizes[channels] : !type.sizes[d].is(1)) return -1;
    if (type.rank() == 1) return arg.get<Ref>().id;
    return frozen_call("aten::view", {arg, ArgList{type.sizes[at]}}, true);
  }

  // The product's weights multiplied by a number, or by a vector over its channels; -1: can't.
  ValueId scaled_weights(const Node& product, const Arg& along) {
    const Arg& weight = product.args[weight_at(product)];
    if (along.is_number() || product.op != kConvolution)
      return frozen_call("aten::mul.Tensor", {weight, along});
    const Sizes sizes = graph_.type(weight.get<Ref>().id).sizes;
    ArgList over(sizes.size(), Arg(1));  // the vector, over the weights' dimensions
    if (product.args[kTransposed] == Arg(false)) {
      over[0] = sizes[0];
      return times(weight, along, std::move(over));
    }
    over[1] = sizes[1];
    const Size groups = product.args[kGroups].get<Size>();
    if (groups.is(1)) return times(weight, along, std::move(over));
    // [in, out / groups, ...]: the channels of a group belong to the rows of that group.
    if (!groups.is_known() || !sizes[0].is_known()) return -1;
    over.insert(over.begin(), groups);
    ArgList parts(sizes.begin(), sizes.end());
    parts[0] = sizes[0].known() / groups.known();
    parts.insert(parts.begin(), groups);
    const ValueId grouped = frozen_call("aten::view", {weight, std::move(parts)}, true);
    const ValueId made = grouped < 0 ? -1 : times(Ref{grouped}, along, std::move(over));
    if (made < 0) return -1;
    return frozen_call("aten::view", {Ref{made}, ArgList(sizes.begin(), sizes.end())}, true);
  }

  ValueId times(const Arg& weight, const Arg& vector, ArgList sizes) {
    const ValueId shaped = frozen_call("aten::view", {vector, std::move(sizes)}, true);
    return shaped < 0 ? -1 : frozen_call("aten::mul.Tensor", {weight, Ref{shaped}});
  }

  ValueId frozen_call(std::string_view op, std::vector<Arg> args, bool is_view = false) {
    const ValueId value = writer_.call(op, std::move(args), is_view);
    frozen_.resize(graph_.values.size());
    if (value >= 0) frozen_[value] = true;
    return value;
  }

  Graph& graph_;
  std::vector<bool> frozen_;
  std::vector<int32_t> uses_;
  NodeWriter writer_;
  Replacements replacements_;
};

}  // namespace

bool fold_into_weights(Graph& graph, const PassOptions& options) {
  return !options.frozen.empty() && Folder(graph, options.frozen).run();
}

}  // namespace smelt
