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
//
// For whoever changes it: a result that the caller gets has the strides it has in eager, and a
// value whose type can't be brought back ends the attempt; views of the caller's tensors never
// follow, since they begin at an input, which has no twin.

#include <algorithm>
#include <map>

#include "graph/effects.h"
#include "ops/layout.h"
#include "passes/frozen_values.h"
#include "passes/node_writer.h"
#include "passes/passes.h"
#include "passes/replacements.h"

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
        twins_(graph.values.size(), -1) {}

  // False: nothing is to be gained, or a type can't be brought back; the graph is of no use then.
  bool run() {
    std::vector<Node> nodes = std::move(graph_.nodes);
    for (Node& node : nodes) {
      replacements_.apply(node);
      if (is_packable(node)) {
        pack(node);
      } else if (!has_twin(node)) {
        writer_.keep(std::move(node));
      } else if (!follow(node)) {
        for (Arg& arg : node.args) each_ref(arg, [&](Ref& ref) { ref.id = plain(ref.id); });
        writer_.keep(std::move(node));
      }
    }
    replacements_.apply(graph_.outputs);
    for (ValueId& output : graph_.outputs)
      if (output >= 0) output = plain(output);
    writer_.finish();
    return good_ && packed_ > converted_;
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

  static TensorType channels_last(const TensorType& type) {
    return fresh(type.dtype, type.device, type.sizes, *format_strides(type.sizes, kChannelsLast));
  }

  void pack(const Node& node) {
    const Arg stride = pair_of(node.args[3]), padding = pair_of(node.args[4]);
    const Arg dilation = pair_of(node.args[5]), &groups = node.args[8];
    const ValueId old = node.results[0];
    const ValueId input = in_channels_last(node.args[0].get<Ref>().id);
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
                     channels_last(graph_.type(old)));
    put(old, made);
    ++packed_;
  }

  // `made` stands for `old`: as it is if the types are equal, else in another layout.
  void put(ValueId old, ValueId made) {
    twins_.resize(graph_.values.size(), -1);
    if (graph_.type(made) == graph_.type(old))
      replacements_.put(old, made);
    else
      twins_[old] = made;
  }

  ValueId twin(ValueId value) const {
    return static_cast<size_t>(value) < twins_.size() ? twins_[value] : -1;
  }
  bool has_twin(const Node& node) const {
    bool found = false;
    for (const Arg& arg : node.args)
      each_ref(arg, [&](Ref ref) { found = found || twin(ref.id) >= 0; });
    return found;
  }

  ValueId in_channels_last(ValueId value) {
    if (twin(value) >= 0 && is_channels_last(graph_.symbols, graph_.type(twin(value))))
      return twin(value);
    if (is_channels_last(graph_.symbols, graph_.type(value))) return value;
    return copy(twin(value) >= 0 ? twin(value) : value, kChannelsLast);
  }

  ValueId copy(ValueId value, MemoryFormat format) {
    ValueId& made = copies_.try_emplace({value, format.value}, -1).first->second;
    if (made >= 0) return made;
    made = writer_.call("aten::clone", {Ref{value}, format});
    ++converted_;
    if (made >= 0) return made;
    good_ = false;
    return made = value;
  }

  // The value as it was typed before.
  ValueId plain(ValueId value) {
    if (twin(value) < 0) return value;
    const ValueId made = copy(twin(value), kContiguous);
    good_ = good_ && graph_.type(made) == graph_.type(value);
    return made;
  }

  // The node on the twins of its arguments.
  bool follow(const Node& node) {
    if (!node.traits.is_pure() || effects::is_mutator(node.op)) return false;
    Node moved = node;
    for (Arg& arg : moved.args)
      each_ref(arg, [&](Ref& ref) { ref.id = twin(ref.id) >= 0 ? twin(ref.id) : ref.id; });
    const std::vector<TensorType> types = writer_.types_of(node.op, moved.args);
    if (types.size() != node.results.size()) return false;
    for (size_t i = 0; i < types.size(); ++i) {
      if (node.results[i] < 0) return false;
      const TensorType& before = graph_.type(node.results[i]);
      if (types[i].sizes != before.sizes || types[i].dtype != before.dtype) return false;
    }
    for (size_t i = 0; i < types.size(); ++i) {
      moved.results[i] = static_cast<ValueId>(graph_.values.size());
      graph_.values.push_back({.type = types[i]});
    }
    writer_.keep(moved);
    for (size_t i = 0; i < types.size(); ++i) put(node.results[i], moved.results[i]);
    return true;
  }

  Graph& graph_;
  std::vector<bool> frozen_;
  NodeWriter writer_;
  Replacements replacements_;
  std::vector<ValueId> twins_;                         // by value: the same in another layout
  std::map<std::pair<ValueId, int>, ValueId> copies_;  // of a value in a format
  int packed_ = 0, converted_ = 0;
  bool good_ = true;
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
