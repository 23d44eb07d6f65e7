// Convolutions by frozen weights through oneDNN's own interface: the weights are brought into the
// blocked format that the library wants once, not in each call, and the tensors between are
// channels-last, which it reads and writes as they are. Layout spreads from convolution to
// convolution: what computes one from the other (batch norms that were not folded, activations,
// sums, pools) is typed again by its shape rule and runs in the new layout; one copy stands where a
// chain begins, and one wherever something needs the tensor as it was.
//
// Rows of pixels (conv1d) are images of one line, seen so by views; volumes have a format of their
// own; transposed convolutions have ops of their own.
//
// Microseconds, two threads, NCHW as eager does it and packed channels-last: 64 channels of 56x56
// by 1x1 267, 140; by 3x3 981, 1021; 128 of 28x28 by 3x3 1079, 740; 256 of 14x14 by 3x3 1010, 690.
// One thread, rows: 80 to 384 channels of 300 by 3 5143, 4241; volumes: 16 to 32 channels of 16^3
// by 3x3x3 4951, 1307; transposed: 128 to 64 channels of 16x16 by 3x3, stride 2 1040, 721; bf16: 64
// to 256 channels of 56x56 by 1x1 2178, 1555. Where the layout has to be changed for each
// convolution nothing is left of that: the pass does nothing unless there are more convolutions
// than such copies.

#include <map>

#include "passes/passes.h"
#include "passes/rewriting/frozen_values.h"
#include "passes/rewriting/layout_twins.h"
#include "passes/rewriting/node_writer.h"

namespace smelt {
namespace {

const OpName kConvolution("aten::convolution");
const OpName kReorder("mkldnn::_reorder_convolution_weight");
const OpName kPacked("mkldnn::_convolution_pointwise");
const OpName kReorderTransposed("mkldnn::_reorder_convolution_transpose_weight");
const OpName kPackedTransposed("mkldnn::_convolution_transpose_pointwise");

// How a convolution walks, one number per dimension.
struct Window {
  ArgList stride, padding, dilation, output_padding;
};

// A list of one stands for all dimensions. `alone` is that of the line in an image of one line.
ArgList per_dimension(const Arg& arg, int rank, int alone) {
  ArgList list = arg.get<ArgList>();
  while (static_cast<int>(list.size()) < rank - 2) list.push_back(list[0]);
  if (rank == 3) list.insert(list.begin(), alone);
  return list;
}

Window window_of(const Node& node, int rank) {
  return {.stride = per_dimension(node.args[3], rank, 1),
          .padding = per_dimension(node.args[4], rank, 0),
          .dilation = per_dimension(node.args[5], rank, 1),
          .output_padding = per_dimension(node.args[7], rank, 0)};
}

class Packer {
 public:
  Packer(Graph& graph, const PassOptions& options)
      : graph_(graph),
        options_(options),
        frozen_(frozen_values(graph, options.frozen)),
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
    return good_ && twins_.good() && packed_ > twins_.copies();
  }

 private:
  const TensorType& type(const Arg& arg) const { return graph_.type(arg.get<Ref>().id); }

  bool is_packable(const Node& node) const {
    if (node.op != kConvolution || !is_frozen(frozen_, node.args[1])) return false;
    const TensorType& input = type(node.args[0]);
    return input.rank() >= 3 && input.rank() <= 5 && input.device.is_cpu() &&
           takes(input.dtype, node) && all_known(input.sizes) &&
           all_known(graph_.type(node.results[0]).sizes) && !input.numel().is(0) &&
           !graph_.type(node.results[0]).numel().is(0);
  }

  static bool is_transposed(const Node& node) { return node.args[6] == Arg(true); }

  // Does the library take all of its tensors? Transposed ones in groups it computes no faster than
  // before if they are of f16 or bf16.
  bool takes(DType dtype, const Node& node) const {
    const TensorType& weight = type(node.args[1]);
    if (weight.dtype != dtype || (node.args[2].is<Ref>() && type(node.args[2]).dtype != dtype))
      return false;
    if (is_transposed(node) &&
        ((dtype != DType::f32 && node.args[8] != Arg(1)) || !options_.has_op(kReorderTransposed) ||
         !options_.has_op(kPackedTransposed)))
      return false;
    return dtype == DType::f32 || (options_.onednn_takes && options_.onednn_takes(dtype));
  }

  // A row of pixels as an image of one line.
  ValueId image_of(ValueId value) {
    if (graph_.type(value).rank() != 3) return value;
    ValueId& image = images_.try_emplace(value, -1).first->second;
    if (image < 0) image = writer_.call("aten::unsqueeze", {Ref{value}, 2}, /*is_view=*/true);
    good_ = good_ && image >= 0;
    return image < 0 ? value : image;
  }
  ValueId row_of(ValueId image) {
    const ValueId row = writer_.call("aten::squeeze.dim", {Ref{image}, 2}, /*is_view=*/true);
    good_ = good_ && row >= 0;
    return row < 0 ? image : row;
  }

  void pack(const Node& node) {
    const ValueId old = node.results[0], from = node.args[0].get<Ref>().id;
    const int rank = graph_.type(old).rank();
    const ValueId input = twins_.channels_last(rank == 3 ? image_of(twins_.at_hand(from)) : from);
    const ValueId made = call(node, input, window_of(node, rank), image_type(old));
    twins_.put(old, rank == 3 ? row_of(made) : made);
    ++packed_;
  }

  TensorType image_type(ValueId value) const {
    TensorType type = graph_.type(value);
    if (type.rank() == 3) type.sizes.insert(type.sizes.begin() + 2, 1);
    return in_channels_last(type);
  }

  // What the packed tensor is like only the library knows: nobody else may read it.
  ValueId call(const Node& node, ValueId input, const Window& window, TensorType made) {
    const Arg &bias = node.args[2], &groups = node.args[8];
    const Arg weight = Ref{image_of(node.args[1].get<Ref>().id)};
    const bool transposed = is_transposed(node);
    std::vector<Arg> how = {window.padding, window.stride, window.dilation, groups};
    if (transposed) how.insert(how.begin() + 1, window.output_padding);
    std::vector<Arg> reordering = {weight};
    reordering.insert(reordering.end(), how.begin(), how.end());
    const Sizes& sizes = graph_.type(input).sizes;
    reordering.emplace_back(ArgList(sizes.begin(), sizes.end()));
    const ValueId packed = writer_.call((transposed ? kReorderTransposed : kReorder).str(),
                                        std::move(reordering), type(weight));
    std::vector<Arg> args = {Ref{input}, Ref{packed}, bias};
    args.insert(args.end(), how.begin(), how.end());
    for (Arg arg : {Arg(std::string("none")), Arg(ArgList{}), Arg(std::string())})
      args.push_back(std::move(arg));
    return writer_.call((transposed ? kPackedTransposed : kPacked).str(), std::move(args),
                        std::move(made));
  }

  Graph& graph_;
  const PassOptions& options_;
  std::vector<bool> frozen_;
  NodeWriter writer_;
  LayoutTwins twins_;
  std::map<ValueId, ValueId> images_;
  int packed_ = 0;
  bool good_ = true;
};

}  // namespace

bool pack_convolutions(Graph& graph, const PassOptions& options) {
  if (!options.has_op || !options.has_op(kReorder) || !options.has_op(kPacked)) return false;
  if (options.frozen.empty()) return false;
  Graph draft = graph;
  if (!Packer(draft, options).run()) return false;
  graph = std::move(draft);
  return true;
}

}  // namespace smelt
