// Convolutions by frozen weights through oneDNN's own interface: the weights are brought into the
// blocked format that the library wants once, not in each call, and the tensors between are
// channels-last, which it reads and writes as they are. Layout spreads from convolution to
// convolution: what computes one from the other (batch norms that were not folded, activations,
// sums, pools) is typed again by its shape rule and runs in the new layout; one copy stands where a
// chain begins, and one wherever something needs the tensor as it was.
//
// Microseconds, two threads, NCHW as eager does it and packed channels-last: 64 channels of 56x56
// by 1x1 267, 140; by 3x3 981, 1021; 128 of 28x28 by 3x3 1079, 740; 256 of 14x14 by 3x3 1010, 690.
// Where the layout has to be changed for each convolution nothing is left of that: the pass does
// nothing unless there are more convolutions than such copies.

#include "passes/frozen_values.h"
#include "passes/layout_twins.h"
#include "passes/node_writer.h"
#include "passes/passes.h"

namespace smelt {
namespace {

const OpName kConvolution("aten::convolution");
const OpName kReorder("mkldnn::_reorder_convolution_weight");
const OpName kPacked("mkldnn::_convolution_pointwise");

// A list of one stands for all dimensions.
ArgList pair_of(const Arg& arg) {
  ArgList list = arg.get<ArgList>();
  if (list.size() == 1) list.push_back(list[0]);
  return list;
}

class Packer {
 public:
  Packer(Graph& graph, const std::vector<bool>& frozen)
      : graph_(graph),
        frozen_(frozen_values(graph, frozen)),
        writer_(graph),
        twins_(graph, writer_) {}

  // False: nothing is to be gained, or a type can't be brought back; the graph is of no use then.
  bool run() {
    std::vector<Node> nodes = std::move(graph_.nodes);
    for (Node& node : nodes) {
      twins_.apply(node);
      if (is_packable(node))
        pack(node);
      else
        twins_.add(std::move(node));
    }
    twins_.finish();
    return twins_.good() && packed_ > twins_.copies();
  }

 private:
  const TensorType& type(const Arg& arg) const { return graph_.type(arg.get<Ref>().id); }

  bool is_packable(const Node& node) const {
    if (node.op != kConvolution || node.args[6] != Arg(false)) return false;
    const ValueId weight = node.args[1].get<Ref>().id;
    if (static_cast<size_t>(weight) >= frozen_.size() || !frozen_[weight]) return false;
    const TensorType& input = type(node.args[0]);
    return input.dtype == DType::f32 && input.rank() == 4 && input.device.is_cpu() &&
           all_known(input.sizes) && all_known(graph_.type(node.results[0]).sizes) &&
           !input.numel().is(0) && !graph_.type(node.results[0]).numel().is(0);
  }

  void pack(const Node& node) {
    const Arg stride = pair_of(node.args[3]), padding = pair_of(node.args[4]);
    const Arg dilation = pair_of(node.args[5]), &groups = node.args[8];
    const ValueId old = node.results[0];
    const ValueId input = twins_.channels_last(node.args[0].get<Ref>().id);
    const Sizes& sizes = graph_.type(input).sizes;
    // What the packed tensor is like only the library knows: nobody else may read it.
    const ValueId weights = writer_.call(
        kReorder.str(),
        {node.args[1], padding, stride, dilation, groups, ArgList(sizes.begin(), sizes.end())},
        type(node.args[1]));
    const ValueId made =
        writer_.call(kPacked.str(),
                     {Ref{input}, Ref{weights}, node.args[2], padding, stride, dilation, groups,
                      std::string("none"), ArgList{}, std::string()},
                     in_channels_last(graph_.type(old)));
    twins_.put(old, made);
    ++packed_;
  }

  Graph& graph_;
  std::vector<bool> frozen_;
  NodeWriter writer_;
  LayoutTwins twins_;
  int packed_ = 0;
};

}  // namespace

bool pack_convolutions(Graph& graph, const PassOptions& options) {
  if (!options.has_op || !options.has_op(kReorder) || !options.has_op(kPacked)) return false;
  if (options.frozen.empty()) return false;
  Graph draft = graph;
  if (!Packer(draft, options.frozen).run()) return false;
  graph = std::move(draft);
  return true;
}

}  // namespace smelt
