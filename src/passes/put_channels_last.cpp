// Convolutions of what generated kernels compute, with the channels last. oneDNN brings a
// convolution's input into that order, or one like it, while the input and the result are there
// too; a kernel can as well write it so. Stands behind decompose: which nodes kernels compute is
// known then, and before the passes for frozen weights, whose convolutions are packed.
//
// A convolution is chosen if a kernel makes its input, kernels or chosen convolutions alone read
// its input and its result, oneDNN computes it anyway, and the weights, which are brought into that
// order in each call, are small beside the input. All others stay as they are.
//
// `unet_block`, peak bytes and microseconds on one thread: 1720320, 2208 in NCHW; 1355824, 2331.
// The convolutions themselves take less time, the tiled kernels that transpose take more.
//
// On CUDA all convolutions of a net are chosen, and their gradients, if there are several: cuDNN
// computes with the channels last, and brings input, weights and result of each convolution into
// that order and back (ResNet-50 of 32 images in bf16 on an H200: 580 of 2460 us).

#include <algorithm>

#include "graph/effects.h"
#include "ops/meaning.h"
#include "ops/rules/layout.h"
#include "passes/passes.h"
#include "passes/rewriting/frozen_values.h"
#include "passes/rewriting/layout_twins.h"

namespace smelt {
namespace {

const OpName kConvolution("aten::convolution");
const OpName kConvolutionBackward("aten::convolution_backward");
const OpName kOneDnn("mkldnn::_convolution_pointwise");  // there, if PyTorch is built with it

// How many times as large as the weights the input has to be.
constexpr int64_t kWorthIt = 2;

// The convolutions to be changed.
class Choice {
 public:
  Choice(Graph& graph, const std::vector<bool>& frozen)
      : graph_(graph),
        frozen_(frozen_values(graph, frozen)),
        readers_(graph.values.size()),
        is_output_(graph.values.size()),
        chosen_(graph.nodes.size()) {
    for (ValueId output : graph.outputs)
      if (output >= 0) is_output_[output] = true;
    for (size_t i = 0; i < graph.nodes.size(); ++i)
      for (const Arg& arg : graph.nodes[i].args)
        each_ref(arg, [&](Ref ref) { readers_[ref.id].push_back(static_cast<NodeId>(i)); });
  }

  // By node; empty if there are none.
  std::vector<bool> run() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) chosen_[i] = is_candidate(graph_.nodes[i]);
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t i = 0; i < graph_.nodes.size(); ++i) {
        if (!chosen_[i] || (may_move(input(i)) && may_move(graph_.nodes[i].results[0]))) continue;
        chosen_[i] = false;
        changed = true;
      }
    }
    return std::ranges::find(chosen_, true) == chosen_.end() ? std::vector<bool>() : chosen_;
  }

 private:
  ValueId input(size_t node) const { return graph_.nodes[node].args[0].get<Ref>().id; }

  static bool is_computed(const Node& node) {
    if (!node.traits.is_pure() || node.traits.view || node.op == kConvolution) return false;
    const Meaning* meaning = find_meaning(node.op);
    return meaning && (meaning->element || meaning->reduction);
  }

  // Does oneDNN compute it in NCHW, too? Of one image it leaves products and small ones to others.
  static bool is_for_onednn(const TensorType& input, const TensorType& weight) {
    const bool is_product = weight.sizes[2].is(1) && weight.sizes[3].is(1);
    return !is_product && (input.sizes[0].known() > 1 || input.numel().known() > 20480);
  }

  bool is_candidate(const Node& node) const {
    if (node.op != kConvolution || node.args[6] != Arg(false) || node.args[8] != Arg(Size(1)))
      return false;
    const ValueId weight = node.args[1].get<Ref>().id, made = node.args[0].get<Ref>().id;
    const TensorType &from = graph_.type(made), &by = graph_.type(weight);
    if (frozen_[weight] || !is_contiguous(by) || !is_plain(from) ||
        !is_plain(graph_.type(node.results[0])))
      return false;
    const NodeId producer = graph_.values[made].node;
    return producer >= 0 && is_computed(graph_.nodes[producer]) && is_for_onednn(from, by) &&
           by.numel().known() * kWorthIt <= from.numel().known();
  }

  static bool is_contiguous(const TensorType& type) {
    return type.dtype == DType::f32 && type.rank() == 4 && type.device.is_cpu() &&
           all_known(type.sizes) && type.strides == contiguous_strides(type.sizes) &&
           !type.numel().is(0);
  }
  // NCHW, and not at the same time the other.
  bool is_plain(const TensorType& type) const {
    return is_contiguous(type) && !is_channels_last(graph_.symbols, type);
  }

  // Does nobody need the value as it is?
  bool may_move(ValueId value) const {
    return !is_output_[value] && std::ranges::all_of(readers_[value], [&](NodeId reader) {
      const Node& node = graph_.nodes[reader];
      if (node.traits.view) return node.results.size() == 1 && may_move(node.results[0]);
      if (node.op != kConvolution) return is_computed(node);
      return chosen_[reader] && node.args[1] != Arg(Ref{value});
    });
  }

  Graph& graph_;
  const std::vector<bool> frozen_;
  std::vector<std::vector<NodeId>> readers_;
  std::vector<bool> is_output_, chosen_;
};

// The operands of a convolution, or of its gradients: what it is computed of, and last the weights.
std::vector<size_t> operands_of(const Node& node) {
  return node.op == kConvolutionBackward ? std::vector<size_t>{0, 1, 2} : std::vector<size_t>{0, 1};
}

bool is_convolution(const Node& node) {
  return node.op == kConvolution || node.op == kConvolutionBackward;
}

// The same on CUDA; empty if there are too few.
std::vector<bool> choose_on_cuda(const Graph& graph) {
  constexpr int64_t kSeveral = 8;
  constexpr int64_t kFewChannels = 16;  // of a result
  std::vector<bool> chosen(graph.nodes.size());
  const auto is_plain = [](const TensorType& type) {
    const bool is_float =
        type.dtype == DType::f16 || type.dtype == DType::bf16 || type.dtype == DType::f32;
    return type.rank() == 4 && type.device.is_cuda() && is_float && all_known(type.sizes) &&
           type.strides == contiguous_strides(type.sizes) && !type.numel().is(0);
  };
  const auto is_point = [](const TensorType& type) {
    return type.sizes[2].is(1) && type.sizes[3].is(1);
  };
  int64_t convolutions = 0;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (!is_convolution(node)) continue;
    const bool backward = node.op == kConvolutionBackward;
    const size_t first = backward ? 1 : 0;
    if (node.args[first + 6] != Arg(false) || node.args[first + 8] != Arg(Size(1))) continue;
    const std::vector<size_t> operands = operands_of(node);
    chosen[i] = std::ranges::all_of(
        operands, [&](size_t k) { return is_plain(graph.type(node.args[k].get<Ref>().id)); });
    if (!chosen[i]) continue;
    const TensorType& from = graph.type(node.args[first].get<Ref>().id);
    const TensorType& made =
        graph.type(backward ? node.args[0].get<Ref>().id : node.results[0]);  // in the forward pass
    chosen[i] = is_plain(made) && !is_point(from) && !is_point(made) &&
                made.sizes[1].known() >= kFewChannels;
    convolutions += chosen[i] && !backward;
  }
  return convolutions < kSeveral ? std::vector<bool>() : chosen;
}

bool rewrite(Graph& graph, const std::vector<bool>& chosen) {
  std::vector<bool> moved(graph.values.size());
  for (size_t i = 0; i < chosen.size(); ++i)
    if (chosen[i])
      for (const size_t k : operands_of(graph.nodes[i]))
        if (k != operands_of(graph.nodes[i]).back())
          moved[graph.nodes[i].args[k].get<Ref>().id] = true;
  NodeWriter writer(graph);
  LayoutTwins twins(graph, writer);
  for (const Input& input : graph.inputs)
    if (moved[input.value]) twins.put_channels_last(input.value);
  std::vector<Node> nodes = std::move(graph.nodes);
  bool writes = false;
  for (size_t i = 0; i < nodes.size(); ++i) {
    Node& node = nodes[i];
    // Nothing is computed behind the first write: kernels store there what is written.
    if (!writes && node.op == effects::kWrite)
      for (size_t later = i; later < nodes.size(); ++later)
        if (nodes[later].traits.effect) twins.bring_back(nodes[later]);
    writes = writes || node.op == effects::kWrite;
    const std::vector<ValueId> results = node.results;
    twins.apply(node);
    // The library would copy the weights, and takes longer.
    if (chosen[i]) {
      const size_t weights = operands_of(node).back();
      node.args[weights] = Ref{twins.channels_last(node.args[weights].get<Ref>().id)};
    }
    if (is_convolution(node) && !chosen[i])
      twins.add_plain(std::move(node));
    else
      twins.add(std::move(node));
    for (ValueId result : results)
      if (result >= 0 && moved[result]) twins.put_channels_last(result);
  }
  twins.finish();
  return twins.good();
}

}  // namespace

bool put_channels_last(Graph& graph, const PassOptions& options) {
  if (!options.has_kernels) return false;
  std::vector<bool> chosen = choose_on_cuda(graph);
  if (chosen.empty() && options.has_op && options.has_op(kOneDnn))
    chosen = Choice(graph, options.frozen).run();
  if (chosen.empty()) return false;
  Graph draft = graph;
  if (!rewrite(draft, chosen)) return false;
  graph = std::move(draft);
  return true;
}

}  // namespace smelt
