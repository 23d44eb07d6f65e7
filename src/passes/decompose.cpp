// Compound ops as the simple ones that kernels compute: the rules are Meaning::decompose, one per
// op. Stands after fold_constants, which computes a whole compound op of constants as eager does,
// and before the passes that clean up behind it: the pieces of a split are views to simplify, equal
// pieces of two norms become one, and what a rule wrote for a result that nobody reads is dead.
//
// Nothing of a rule's work is in the graph before all of it is known to be good. For whoever
// changes this:
//
//   - A rule that refuses, whose op refuses its arguments, or that would need a new guard on
//     symbolic sizes leaves the node as it was.
//   - The value that stands for a result has the result's very type: where the strides differ, or
//     the value is one that others know, a copy stands between. Kernels make nothing of such
//     copies, and without kernels the dispatcher gives the strides that eager gave.
//   - Views that the caller gets of his own tensors stay as they are (visible_views).
//   - Results that nobody reads are hidden from the rule (-1).
//   - Optimizers give gradients back as they were. A copy that this pass made of an input, written
//     to that same input by its only write, is not written.

#include <algorithm>
#include <deque>
#include <unordered_map>

#include "base/error.h"
#include "graph/effects.h"
#include "ops/meaning.h"
#include "ops/rows.h"
#include "ops/rules/layout.h"
#include "ops/rules/not_literal.h"
#include "passes/passes.h"
#include "passes/rewriting/ownership.h"
#include "passes/rewriting/replacements.h"

namespace smelt {
namespace {

// Of the ops that rules write these share memory with their first argument.
const OpName kViews[] = {OpName("aten::_unsafe_view"), OpName("aten::expand"),
                         OpName("aten::select.int"),   OpName("aten::slice.Tensor"),
                         OpName("aten::unsqueeze"),    OpName("aten::view")};
const OpName kClone("aten::clone");
// Rules write these where the sign of a zero is lost, or where the op itself does not say which.
const OpName kLoose[] = {OpName("aten::amax"), OpName("aten::amin")};
// Their results share memory, though they do not say so.
const OpName kUnsafeSplits[] = {OpName("aten::unsafe_split.Tensor"),
                                OpName("aten::unsafe_split_with_sizes")};

// What a rule writes in the place of one node.
class Draft final : public DecomposeQuery {
 public:
  // `before`: the graph's nodes in front of this one, as they are by now.
  Draft(const Graph& graph, const Node& node, const std::vector<Node>& before)
      : DecomposeQuery(graph, node),
        before_(before),
        first_(static_cast<ValueId>(graph.values.size())),
        is_view_(node.traits.view ||
                 std::ranges::find(kUnsafeSplits, node.op) != std::end(kUnsafeSplits)),
        symbols_(graph.symbols),
        standing_for_(node.results.size(), -1) {}

  ValueId call(std::string_view op, std::vector<Arg> args) override {
    return append(OpName(op), std::move(args));
  }

  const TensorType& type_of(ValueId value) const override {
    return value < first_ ? graph().type(value) : types_[value - first_];
  }

  const Node* maker(ValueId value) const override {
    for (auto node = before_.rbegin(); node != before_.rend(); ++node)
      if (std::ranges::find(node->results, value) != node->results.end()) return &*node;
    return nullptr;
  }

  Decision is_lowered() const override { return can_lower(graph(), node()); }

  void replace(size_t i, ValueId value) override {
    if (!good_) return;
    const TensorType& wanted = result(i);
    const TensorType& type = type_of(value);
    const bool same_elements =
        type.dtype == wanted.dtype && type.device == wanted.device && type.sizes == wanted.sizes;
    if (same_elements && !(type == wanted && may_stand(value))) value = copied(value, wanted);
    good_ = good_ && type_of(value) == wanted;
    standing_for_[i] = value;
  }

  // Is every result that is read replaced, with nothing that went wrong?
  bool is_good() const {
    if (!good_ || symbols_.guards().size() != graph().symbols.guards().size()) return false;
    for (size_t i = 0; i < standing_for_.size(); ++i) {
      if (node().results[i] >= 0 && standing_for_[i] < 0) return false;
    }
    return true;
  }

  // Puts the values into the graph; the nodes and what stands for the results are the caller's.
  std::vector<Node> finish(Graph& graph, Replacements& replacements) {
    for (TensorType& type : types_) graph.values.push_back({.type = std::move(type)});
    for (size_t i = 0; i < standing_for_.size(); ++i) {
      if (standing_for_[i] >= 0) replacements.put(node().results[i], standing_for_[i]);
    }
    return std::move(nodes_);
  }

 private:
  // The type the op's shape rule gives the only result.
  std::optional<TensorType> infer(OpName op, std::vector<Arg> args) {
    const OpRow* row = find_row(op);
    SMELT_CHECK(row != nullptr, "a decomposition writes " + op.str() + ", which has no shape rule");
    std::vector<TensorType> types;
    for (Arg& arg : args) {
      each_ref(arg, [&](Ref& ref) {
        types.push_back(type_of(ref.id));
        ref.id = static_cast<int32_t>(types.size()) - 1;
      });
    }
    ShapeQuery query(args, types, symbols_, graph().default_float);
    if (!with_literals([&] { return row->shape(query); }) || query.results.size() != 1)
      return std::nullopt;
    if (query.results[0]) query.results[0]->wrapped_number = false;
    return query.results[0];
  }

  // After a refusal the rule goes on with a value that is of no use.
  ValueId append(OpName op, std::vector<Arg> args) {
    std::optional<TensorType> type = good_ ? infer(op, args) : std::nullopt;
    good_ = good_ && type.has_value();
    const auto value = static_cast<ValueId>(first_ + types_.size());
    types_.push_back(type ? std::move(*type) : TensorType(result_or_argument()));
    const bool view = std::ranges::find(kViews, op) != std::end(kViews);
    const bool loose = std::ranges::find(kLoose, op) != std::end(kLoose);
    nodes_.push_back({op, std::move(args), {value}, {.view = view, .loose = loose}});
    return value;
  }

  const TensorType& result_or_argument() const {
    for (const ValueId value : node().results) {
      if (value >= 0) return graph().type(value);
    }
    return type(0);
  }

  // The value whose memory this one shows.
  ValueId root_of(ValueId value) const {
    while (value >= first_ && nodes_[value - first_].traits.view)
      value = nodes_[value - first_].args[0].get<Ref>().id;
    return value;
  }

  // May this value be handed to the readers of a result? It must not be known to others, and its
  // memory not either, unless the node is a view.
  bool may_stand(ValueId value) const {
    if (value < first_) return false;
    if (is_view_) return true;
    const ValueId root = root_of(value);
    return root >= first_ && std::ranges::none_of(standing_for_, [&](ValueId other) {
             return other >= 0 && root_of(other) == root;
           });
  }

  ValueId copied(ValueId value, const TensorType& wanted) {
    if (is_view_) return value;
    for (const Arg& format :
         {Arg(None{}), Arg(kContiguous), Arg(kChannelsLast), Arg(kChannelsLast3d)}) {
      const std::optional<TensorType> type = infer(kClone, {Ref{value}, format});
      if (type == wanted) return append(kClone, {Ref{value}, format});
    }
    return value;
  }

  const std::vector<Node>& before_;
  ValueId first_;
  bool is_view_;  // the results show memory of the first argument
  SymbolTable symbols_;
  std::deque<TensorType> types_;  // of the new values; a deque, since rules hold references
  std::vector<Node> nodes_;       // one per new value
  std::vector<ValueId> standing_for_;
  bool good_ = true;
};

class Decomposer {
 public:
  Decomposer(Graph& graph, const PassOptions& options)
      : graph_(graph),
        has_kernels_(options.has_kernels),
        uses_(graph.use_counts()),
        visible_(visible_views(graph)),
        writes_(uses_.size()) {
    for (const Node& node : graph.nodes) {
      if (node.op == effects::kWrite) ++writes_[node.args[0].get<Ref>().id];
    }
  }

  bool run() {
    std::vector<Node> nodes;
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      Node& node = graph_.nodes[i];
      replacements_.apply(node);
      if (!visible_[i] && decompose(node, nodes)) continue;
      if (restores(node)) {
        replacements_.put(node.results[0], node.args[0].get<Ref>().id);
        continue;
      }
      nodes.push_back(std::move(node));
    }
    graph_.nodes = std::move(nodes);
    if (!replacements_.any()) return false;
    replacements_.apply(graph_.outputs);
    graph_.keep_nodes(std::vector<bool>(graph_.nodes.size(), true));
    return true;
  }

 private:
  bool is_read(ValueId value) const { return value >= 0 && uses_[value] > 0; }

  bool decompose(const Node& node, std::vector<Node>& nodes) {
    const Meaning* meaning = find_meaning(node.op);
    if (meaning == nullptr || meaning->decompose == nullptr || !node.traits.is_pure()) return false;
    Node shown = node;
    for (ValueId& result : shown.results) {
      if (!is_read(result)) result = -1;
      if (result >= 0 && !has_kernels_(graph_.type(result).device)) return false;
    }
    if (std::ranges::none_of(shown.results, [&](ValueId result) { return result >= 0; }))
      return false;
    Draft draft(graph_, shown, nodes);
    const auto rule = [&] {
      return meaning->decompose(draft) ? Decision::allow() : Decision::forbid("the rule refuses");
    };
    if (!with_literals(rule) || !draft.is_good()) return false;
    for (Node& made : draft.finish(graph_, replacements_)) {
      if (made.op == kClone) copies_[made.results[0]] = made.args[0].get<Ref>().id;
      nodes.push_back(std::move(made));
    }
    return true;
  }

  // Does the node write to an input what that has held all the time?
  bool restores(const Node& node) const {
    if (node.op != effects::kWrite || !node.args[1].is<Ref>()) return false;
    const ValueId input = node.args[0].get<Ref>().id;
    const auto copy = copies_.find(node.args[1].get<Ref>().id);
    return copy != copies_.end() && copy->second == input && writes_[input] == 1;
  }

  Graph& graph_;
  const std::function<bool(const Device&)>& has_kernels_;
  std::vector<int32_t> uses_;
  std::vector<bool> visible_;
  std::vector<int32_t> writes_;                  // by value: how often it is written to
  std::unordered_map<ValueId, ValueId> copies_;  // made here: what each is a copy of
  Replacements replacements_;
};

}  // namespace

bool decompose(Graph& graph, const PassOptions& options) {
  return options.has_kernels && Decomposer(graph, options).run();
}

}  // namespace smelt
