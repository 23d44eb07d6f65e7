// The forward is all that its outputs and what is saved need, and every effect and random draw. The
// backward is what the gradients need and is not saved: what is computed of gradients that come in,
// and what is cheaper to compute again than to keep.
//
// Rules for whoever changes it: nothing random or with an effect stands in the backward; a saved
// tensor is never one that an effect of the forward changes; of the caller's tensors exactly those
// are saved that eager saves. Of another one a copy is saved, where that is cheaper than what is
// computed of it: the bias of a batch norm instead of all that an activation reads.
#include "passes/splitting/split_joint.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "graph/alias.h"
#include "graph/effects.h"
#include "passes/rewriting/ownership.h"
#include "passes/splitting/choose_saved.h"

namespace smelt {
namespace {

const OpName kClone("aten::clone");

// Is its clone of the same type?
bool has_clone(const TensorType& type) {
  return !type.wrapped_number && !type.conj && !type.neg && type.offset.is(0) &&
         type.strides == contiguous_strides(type.sizes);
}

template <typename Visit>
void each_argument(const Node& node, const Visit& visit) {
  for (const Arg& arg : node.args)
    each_ref(arg, [&](Ref ref) {
      if (ref.id >= 0) visit(ref.id);
    });
}

bool any_of_results(const Node& node, const std::vector<bool>& marked) {
  return std::ranges::any_of(node.results,
                             [&](ValueId value) { return value >= 0 && marked[value]; });
}

// The nodes that `needed` values are made of, and everything that is not pure; marks what these
// read as needed, too. Nothing is looked for behind a value for which is_there holds.
std::vector<bool> nodes_for(const Graph& graph, std::vector<bool>& needed,
                            const std::vector<bool>& is_there, bool with_effects) {
  std::vector<bool> in(graph.nodes.size());
  std::vector<bool> missing = needed;
  for (size_t i = 0; i < missing.size(); ++i) missing[i] = missing[i] && !is_there[i];
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    in[i] = (with_effects && !node.traits.is_pure()) || any_of_results(node, missing);
    if (!in[i]) continue;
    each_argument(node, [&](ValueId value) {
      needed[value] = true;
      missing[value] = !is_there[value];
    });
  }
  return in;
}

// What both questions below are about.
struct Joint {
  Joint(const Graph& joint, JointParts parts)
      : graph(joint),
        parts(parts),
        nothing(joint.values.size()),
        argument_of(joint.values.size(), -1),
        is_late(joint.values.size()),
        needed_first(joint.values.size()),
        needed_last(joint.values.size()) {
    for (const Input& input : graph.inputs) {
      argument_of[input.value] = input.index;
      is_late[input.value] = input.index >= parts.arguments;
    }
    for (const Node& node : graph.nodes) {
      bool late = false;
      each_argument(node, [&](ValueId value) { late = late || is_late[value]; });
      for (ValueId result : node.results)
        if (result >= 0) is_late[result] = late;
    }
    for (size_t i = 0; i < graph.outputs.size(); ++i)
      if (graph.outputs[i] >= 0)
        (is_gradient(i) ? needed_last : needed_first)[graph.outputs[i]] = true;
    in_forward = nodes_for(graph, needed_first, nothing, /*with_effects=*/true);
    nodes_for(graph, needed_last, nothing, /*with_effects=*/false);
  }

  bool is_gradient(size_t output) const { return std::cmp_greater_equal(output, parts.outputs); }
  bool is_argument(ValueId value) const { return argument_of[value] >= 0 && !is_late[value]; }
  // It is there when the forward has run, and is no constant.
  bool is_early(ValueId value) const {
    const NodeId node = graph.values[value].node;
    return node >= 0 ? in_forward[node] : is_argument(value);
  }

  const Graph& graph;
  const JointParts parts;
  const std::vector<bool> nothing;
  // All by value.
  std::vector<int32_t> argument_of;
  std::vector<bool> is_late;  // computed of a gradient that comes in
  std::vector<bool> needed_first, needed_last;
  std::vector<bool> in_forward;  // by node
};

class Splitting {
 public:
  Splitting(const Graph& joint, JointParts parts, const KeptTensors& kept)
      : joint_(joint, parts), graph_(joint), parts_(parts), kept_(kept), owners_(joint) {}

  SplitGraphs run(const std::vector<bool>& available) {
    check();
    if (!split_.possible) return std::move(split_);
    find_saving(available);
    if (auto saved = parts_.recompute ? save_least(available)
                                      : choose_saved({graph_, joint_.in_forward, joint_.is_late,
                                                      joint_.needed_last, saving_}))
      is_saved_ = std::move(*saved);
    else
      forbid("its backward needs a tensor that is not kept");
    if (!split_.possible) return std::move(split_);
    if (available.empty() && !parts_.recompute) keep_as_eager();
    split_.forward = graph_;
    forward_outputs_.assign(graph_.outputs.begin(), graph_.outputs.begin() + parts_.outputs);
    for (size_t value = 0; value < is_saved_.size(); ++value)
      if (is_saved_[value]) save(static_cast<ValueId>(value));
    make_forward();
    make_backward();
    return std::move(split_);
  }

 private:
  void forbid(std::string reason) {
    if (split_.possible) split_.possible = Decision::forbid(std::move(reason));
  }

  void check() {
    for (const Node& node : graph_.nodes) {
      if (node.op != effects::kWrite) continue;
      const int32_t changed = joint_.argument_of[owners_.roots[node.args[0].get<Ref>().id]];
      if (changed >= 0 && changed < parts_.arguments && kept_.arguments[changed])
        forbid("its backward needs a tensor that the forward changes");
    }
    for (const Input& input : graph_.inputs) {
      if (input.source != Source::argument) forbid("it reads a tensor that is no argument");
      if (joint_.is_late[input.value] && joint_.needed_first[input.value])
        forbid("its backward draws random numbers or changes a tensor");
    }
    for (size_t i = 0; i < graph_.outputs.size(); ++i) {
      const ValueId value = graph_.outputs[i];
      if (value < 0) continue;
      const ValueId root = owners_.roots[value];
      if (!joint_.is_gradient(i)) {
        if (joint_.is_argument(root)) forbid("an output shows the memory of an input");
        continue;
      }
      // A gradient is memory of its own, or that of the gradient it is made of.
      const bool is_constant = graph_.values[root].node < 0 && joint_.argument_of[root] < 0;
      if (joint_.is_early(root) || is_constant) forbid("a gradient is a tensor of the forward");
    }
  }

  void find_saving(const std::vector<bool>& available) {
    const size_t count = graph_.values.size();
    std::vector<bool> is_changed(count), is_gradient(count);  // by root
    std::vector<Saving> of_output(count, Saving::costs);      // by root
    for (const Node& node : graph_.nodes)
      if (node.op == effects::kWrite) is_changed[owners_.roots[node.args[0].get<Ref>().id]] = true;
    for (size_t i = 0; i < graph_.outputs.size(); ++i) {
      if (graph_.outputs[i] < 0) continue;
      const ValueId root = owners_.roots[graph_.outputs[i]];
      if (joint_.is_gradient(i))
        is_gradient[root] = true;
      else if (of_output[root] != Saving::free)
        of_output[root] = kept_.outputs[i] ? Saving::free : Saving::never;
    }
    saving_.assign(count, Saving::never);
    for (size_t value = 0; value < count; ++value) {
      const ValueId root = owners_.roots[value];
      const NodeId node = graph_.values[value].node;
      const bool is_view = node >= 0 && graph_.nodes[node].traits.view;
      if (is_changed[root] || owners_.mutated[value] || is_gradient[root] || is_view) continue;
      if (!available.empty())
        saving_[value] = available[value] ? Saving::free : Saving::never;
      else if (joint_.argument_of[value] >= 0)
        saving_[value] = saving_of_argument(static_cast<ValueId>(value));
      else
        saving_[value] = of_output[root];
    }
  }

  Saving saving_of_argument(ValueId value) const {
    if (!joint_.is_argument(value)) return Saving::never;
    if (kept_.arguments[joint_.argument_of[value]]) return Saving::free;
    return has_clone(graph_.type(value)) ? Saving::copy : Saving::never;
  }

  // Where all else is computed again. Nothing if an argument can't be saved, or if something would
  // have an effect a second time.
  std::optional<std::vector<bool>> save_least(const std::vector<bool>& available) {
    std::vector<bool> wanted(graph_.values.size()), saved(graph_.values.size());
    for (size_t i = static_cast<size_t>(parts_.outputs); i < graph_.outputs.size(); ++i)
      if (graph_.outputs[i] >= 0) wanted[graph_.outputs[i]] = true;
    const auto is_drawn = [&](ValueId value) {
      const NodeId node = graph_.values[value].node;
      return node >= 0 && joint_.in_forward[node] && !graph_.nodes[node].traits.is_pure();
    };
    const auto save = [&](ValueId value) {
      if (!available.empty() && !available[value]) return false;
      if (owners_.mutated[value]) return false;
      saving_[value] = Saving::free;
      saved[value] = true;
      return true;
    };
    for (size_t i = graph_.nodes.size(); i-- > 0;) {
      const Node& node = graph_.nodes[i];
      bool is_wanted = false;
      for (const ValueId result : node.results) {
        if (result < 0 || !wanted[result]) continue;
        if (!is_drawn(result))
          is_wanted = true;
        else if (!save(result))
          return std::nullopt;
      }
      if (is_wanted) each_argument(node, [&](ValueId value) { wanted[value] = true; });
    }
    for (const Input& input : graph_.inputs)
      if (wanted[input.value] && joint_.is_argument(input.value) && !save(input.value))
        return std::nullopt;
    return saved;
  }

  // A change of these before the backward is the error that it is in eager, whether they are needed
  // here or not.
  void keep_as_eager() {
    const auto keep = [&](ValueId value) {
      if (saving_[value] == Saving::free) is_saved_[value] = true;
    };
    for (const Input& input : graph_.inputs)
      if (joint_.is_argument(input.value) && kept_.arguments[input.index]) keep(input.value);
    for (int32_t i = 0; i < parts_.outputs; ++i)
      if (graph_.outputs[i] >= 0 && kept_.outputs[i]) keep(owners_.roots[graph_.outputs[i]]);
  }

  void save(ValueId value) {
    SavedValue saved;
    saved.value = value;
    if (saving_[value] == Saving::copy) {
      saved.from = SavedValue::From::output;
      saved.index = static_cast<int32_t>(forward_outputs_.size());
      forward_outputs_.push_back(copy_of(value));
    } else if (joint_.is_argument(value)) {
      saved.index = joint_.argument_of[value];
    } else {
      saved.from = SavedValue::From::output;
      const auto known = std::ranges::find(forward_outputs_, value);
      saved.index = static_cast<int32_t>(known - forward_outputs_.begin());
      if (known == forward_outputs_.end()) forward_outputs_.push_back(value);
      for (int32_t i = 0; i < parts_.outputs; ++i)
        if (i != saved.index && graph_.outputs[i] >= 0 &&
            owners_.roots[graph_.outputs[i]] == owners_.roots[value])
          saved.shown_by.push_back(i);
    }
    split_.saved.push_back(saved);
  }

  // In the forward.
  ValueId copy_of(ValueId value) {
    Graph& graph = split_.forward;
    const auto copy = static_cast<ValueId>(graph.values.size());
    graph.values.push_back({.type = graph_.type(value)});
    graph.nodes.push_back({kClone, {Ref{value}, None{}}, {copy}, {}});
    return copy;
  }

  static void keep(Graph& graph, const std::vector<bool>& nodes) {
    std::vector<bool> used(graph.values.size());
    for (size_t i = 0; i < graph.nodes.size(); ++i)
      if (nodes[i]) each_argument(graph.nodes[i], [&](ValueId value) { used[value] = true; });
    for (ValueId output : graph.outputs)
      if (output >= 0) used[output] = true;
    std::erase_if(graph.constants, [&](const Constant& constant) { return !used[constant.value]; });
    graph.keep_nodes(nodes);
  }

  static std::vector<bool> wanted(const Graph& graph) {
    std::vector<bool> needed(graph.values.size());
    for (ValueId output : graph.outputs)
      if (output >= 0) needed[output] = true;
    return needed;
  }

  void make_forward() {
    Graph& graph = split_.forward;
    std::erase_if(graph.inputs, [&](const Input& input) { return joint_.is_late[input.value]; });
    graph.outputs = forward_outputs_;
    std::vector<bool> needed = wanted(graph);
    const std::vector<bool> nothing(graph.values.size());
    keep(graph, nodes_for(graph, needed, nothing, /*with_effects=*/true));
  }

  void make_backward() {
    Graph& graph = split_.backward = graph_;
    graph.inputs.clear();
    for (const SavedValue& saved : split_.saved)
      graph.inputs.push_back({.value = saved.value,
                              .source = Source::argument,
                              .index = static_cast<int32_t>(graph.inputs.size())});
    const auto count = static_cast<int32_t>(graph.inputs.size());
    for (const Input& input : graph_.inputs)
      if (joint_.is_late[input.value])
        graph.inputs.push_back({.value = input.value,
                                .source = Source::argument,
                                .index = count + input.index - parts_.arguments});
    graph.outputs.assign(graph_.outputs.begin() + parts_.outputs, graph_.outputs.end());
    for (ValueId output : graph.outputs) {
      const auto handed_on = std::ranges::find(graph.inputs, output, &Input::value);
      split_.returned_argument.push_back(
          output < 0 || handed_on == graph.inputs.end() ? -1 : handed_on->index);
    }
    std::vector<bool> needed = wanted(graph);
    keep(graph, nodes_for(graph, needed, is_saved_, /*with_effects=*/false));
  }

  const Joint joint_;
  const Graph& graph_;
  const JointParts parts_;
  const KeptTensors& kept_;
  const Ownership owners_;
  std::vector<Saving> saving_;  // by value
  std::vector<bool> is_saved_;  // by value
  std::vector<ValueId> forward_outputs_;
  SplitGraphs split_;
};

}  // namespace

KeptTensors kept_by_eager(const Graph& joint, JointParts parts) {
  const Joint all(joint, parts);
  const std::vector<ValueId> roots = view_roots(joint);
  // Read by what the forward does not need: the very tensor, or that of which it is a view.
  std::vector<bool> is_read(joint.values.size());  // by root
  for (size_t i = 0; i < joint.nodes.size(); ++i)
    if (!all.in_forward[i] && any_of_results(joint.nodes[i], all.needed_last))
      each_argument(joint.nodes[i], [&](ValueId value) { is_read[roots[value]] = true; });
  KeptTensors kept{std::vector<bool>(parts.arguments), std::vector<bool>(parts.outputs)};
  for (const Input& input : joint.inputs)
    if (input.index < parts.arguments) kept.arguments[input.index] = is_read[input.value];
  for (int32_t i = 0; i < parts.outputs; ++i)
    kept.outputs[i] = joint.outputs[i] >= 0 && is_read[roots[joint.outputs[i]]];
  return kept;
}

SplitGraphs split_joint(const Graph& joint, JointParts parts, const KeptTensors& kept,
                        const std::vector<bool>& available) {
  return Splitting(joint, parts, kept).run(available);
}

}  // namespace smelt
