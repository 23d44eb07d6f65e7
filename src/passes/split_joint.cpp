// The forward is all that its outputs need, and every effect and random draw. The backward is what
// is left of what the gradients need. A value of the forward that the backward reads is saved,
// except that a view is made again from what it shows: a saved view would be a second tensor on
// memory that is saved anyway.
//
// Rules for whoever changes it: nothing is computed twice but views; nothing random or with an
// effect stands in the backward; a saved tensor is never one that an effect of the forward changes.
#include "passes/split_joint.h"

#include <algorithm>

#include "graph/alias.h"
#include "graph/effects.h"
#include "passes/ownership.h"

namespace smelt {
namespace {

class Splitting {
 public:
  Splitting(const Graph& joint, int32_t arguments, int32_t outputs)
      : joint_(joint), arguments_(arguments), outputs_(outputs), owners_(joint) {}

  SplitGraphs run() {
    find_forward();
    if (split_.possible) find_backward();
    if (split_.possible) find_saved();
    if (!split_.possible) return std::move(split_);
    make_forward();
    make_backward();
    return std::move(split_);
  }

 private:
  void forbid(std::string reason) {
    if (split_.possible) split_.possible = Decision::forbid(std::move(reason));
  }

  bool is_gradient(const Input& input) const { return input.index >= arguments_; }

  template <typename Visit>
  static void each_argument(const Node& node, const Visit& visit) {
    for (const Arg& arg : node.args)
      each_ref(arg, [&](Ref ref) {
        if (ref.id >= 0) visit(ref.id);
      });
  }

  void find_forward() {
    std::vector<bool> needed(joint_.values.size());
    for (int32_t i = 0; i < outputs_; ++i)
      if (joint_.outputs[i] >= 0) needed[joint_.outputs[i]] = true;
    in_forward_.resize(joint_.nodes.size());
    for (size_t i = joint_.nodes.size(); i-- > 0;) {
      const Node& node = joint_.nodes[i];
      in_forward_[i] = !node.traits.is_pure() || std::ranges::any_of(node.results, [&](ValueId v) {
        return v >= 0 && needed[v];
      });
      if (in_forward_[i]) each_argument(node, [&](ValueId value) { needed[value] = true; });
    }
    is_argument_.resize(joint_.values.size());
    for (const Input& input : joint_.inputs) {
      is_argument_[input.value] = true;
      if (input.source != Source::argument) forbid("it reads a tensor that is no argument");
      if (is_gradient(input) && needed[input.value])
        forbid("its backward draws random numbers or changes a tensor");
    }
    for (int32_t i = 0; i < outputs_; ++i)
      if (joint_.outputs[i] >= 0 && is_argument_[owners_.roots[joint_.outputs[i]]])
        forbid("an output shows the memory of an input");
  }

  void find_backward() {
    needed_.resize(joint_.values.size());
    for (size_t i = outputs_; i < joint_.outputs.size(); ++i)
      if (joint_.outputs[i] >= 0) needed_[joint_.outputs[i]] = true;
    in_backward_.resize(joint_.nodes.size());
    for (size_t i = joint_.nodes.size(); i-- > 0;) {
      const Node& node = joint_.nodes[i];
      const bool read = std::ranges::any_of(
          node.results, [&](ValueId value) { return value >= 0 && needed_[value]; });
      if (!read) continue;
      const bool is_view = node.traits.view && node.traits.is_pure();
      in_backward_[i] = !in_forward_[i] || is_view;
      if (in_backward_[i]) each_argument(node, [&](ValueId value) { needed_[value] = true; });
    }
    // A gradient is memory of its own, or that of the gradient it is made of.
    for (size_t i = outputs_; i < joint_.outputs.size(); ++i) {
      const ValueId value = joint_.outputs[i];
      if (value < 0) continue;
      const ValueId root = owners_.roots[value];
      if (is_kept(root) || is_constant(root)) forbid("a gradient is a tensor of the forward");
    }
  }

  bool is_constant(ValueId value) const {
    return joint_.values[value].node < 0 && !is_argument_[value];
  }
  // It is there when the forward has run, and is no constant.
  bool is_kept(ValueId value) const {
    const NodeId node = joint_.values[value].node;
    if (node >= 0) return in_forward_[node];
    return is_argument_[value] && !is_gradient(*input_of(value));
  }
  std::vector<Input>::const_iterator input_of(ValueId value) const {
    return std::ranges::find(joint_.inputs, value, &Input::value);
  }

  void find_saved() {
    std::vector<bool> changed(joint_.values.size());  // by root
    for (const Node& node : joint_.nodes)
      if (node.op == effects::kWrite) changed[owners_.roots[node.args[0].get<Ref>().id]] = true;
    forward_outputs_.assign(joint_.outputs.begin(), joint_.outputs.begin() + outputs_);
    for (size_t value = 0; value < joint_.values.size(); ++value) {
      const auto id = static_cast<ValueId>(value);
      const NodeId node = joint_.values[value].node;
      if (!needed_[value] || !is_kept(id) || (node >= 0 && in_backward_[node])) continue;
      if (changed[owners_.roots[value]] || owners_.mutated[value])
        forbid("its backward needs a tensor that the forward changes");
      save(id);
    }
  }

  void save(ValueId value) {
    SavedValue saved;
    saved.value = value;
    if (is_argument_[value]) {
      saved.index = input_of(value)->index;
    } else {
      saved.from = SavedValue::From::output;
      const auto known = std::ranges::find(forward_outputs_, value);
      saved.index = static_cast<int32_t>(known - forward_outputs_.begin());
      if (known == forward_outputs_.end()) forward_outputs_.push_back(value);
      for (int32_t i = 0; i < outputs_; ++i)
        if (i != saved.index && joint_.outputs[i] >= 0 &&
            owners_.roots[joint_.outputs[i]] == owners_.roots[value])
          saved.shown_by.push_back(i);
    }
    split_.saved.push_back(saved);
    saved_.push_back(value);
  }

  static void drop_unused_constants(Graph& graph, const std::vector<bool>& keep) {
    std::vector<bool> used(graph.values.size());
    for (size_t i = 0; i < graph.nodes.size(); ++i)
      if (keep[i]) each_argument(graph.nodes[i], [&](ValueId value) { used[value] = true; });
    for (ValueId output : graph.outputs)
      if (output >= 0) used[output] = true;
    std::erase_if(graph.constants, [&](const Constant& constant) { return !used[constant.value]; });
  }

  void make_forward() {
    Graph& graph = split_.forward = joint_;
    std::erase_if(graph.inputs, [&](const Input& input) { return is_gradient(input); });
    graph.outputs = forward_outputs_;
    drop_unused_constants(graph, in_forward_);
    graph.keep_nodes(in_forward_);
  }

  void make_backward() {
    Graph& graph = split_.backward = joint_;
    const auto count = static_cast<int32_t>(saved_.size());
    graph.inputs.clear();
    for (int32_t i = 0; i < count; ++i)
      graph.inputs.push_back({.value = saved_[i], .source = Source::argument, .index = i});
    for (const Input& input : joint_.inputs)
      if (is_gradient(input))
        graph.inputs.push_back({.value = input.value,
                                .source = Source::argument,
                                .index = count + input.index - arguments_});
    graph.outputs.assign(joint_.outputs.begin() + outputs_, joint_.outputs.end());
    for (ValueId output : graph.outputs) {
      const auto handed_on = std::ranges::find(graph.inputs, output, &Input::value);
      split_.returned_argument.push_back(
          output < 0 || handed_on == graph.inputs.end() ? -1 : handed_on->index);
    }
    drop_unused_constants(graph, in_backward_);
    graph.keep_nodes(in_backward_);
  }

  const Graph& joint_;
  const int32_t arguments_, outputs_;
  const Ownership owners_;
  std::vector<bool> is_argument_;               // by value
  std::vector<bool> needed_;                    // by value: the backward reads it
  std::vector<bool> in_forward_, in_backward_;  // by node; views may be in both
  std::vector<ValueId> forward_outputs_;
  std::vector<ValueId> saved_;
  SplitGraphs split_;
};

}  // namespace

SplitGraphs split_joint(const Graph& joint, int32_t arguments, int32_t outputs) {
  return Splitting(joint, arguments, outputs).run();
}

}  // namespace smelt
