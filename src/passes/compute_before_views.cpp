// A kernel over rows takes in what is computed from its results row by row, also where several
// dimensions stand for its rows merged, but not where one dimension is cut into several: losses over
// [tokens, classes] whose gradient is rounded as [batch, length, classes] would be two kernels. So a
// pointwise op on such a view is computed on what the view shows, and its result is viewed.
//
// Stands before simplify_views, which then finds views of views.
#include <algorithm>

#include "ops/meaning.h"
#include "ops/rules/layout.h"
#include "passes/passes.h"
#include "passes/rewriting/node_writer.h"
#include "passes/rewriting/replacements.h"

namespace smelt {
namespace {

const OpName kView("aten::view");
const OpName kUnsafeView("aten::_unsafe_view");
const OpName kReshape("aten::reshape");

// Are the dimensions of `merged` those of `cut`, some of them merged?
bool is_cut(const Sizes& merged, const Sizes& cut) {
  if (merged.size() >= cut.size() || !all_known(merged) || !all_known(cut)) return false;
  size_t next = 0;
  for (const Size& size : merged) {
    int64_t length = 1;
    while (next < cut.size() && length < size.known()) length *= cut[next++].known();
    if (length != size.known()) return false;
  }
  return next == cut.size();
}

class Mover {
 public:
  explicit Mover(Graph& graph) : graph_(graph), writer_(graph) {}

  bool run() {
    std::vector<Node> nodes = std::move(graph_.nodes);
    for (Node& node : nodes) {
      replacements_.apply(node);
      if (!move(node)) writer_.keep(std::move(node));
    }
    replacements_.apply(graph_.outputs);
    writer_.finish();
    return replacements_.any();
  }

 private:
  // Is it computed element by element from one tensor?
  bool is_unary(const Node& node) const {
    if (!node.traits.is_pure() || node.traits.view || node.results.size() != 1 ||
        node.results[0] < 0 || node.args.empty() || !node.args[0].is<Ref>())
      return false;
    int tensors = 0;
    for (const Arg& arg : node.args) each_ref(arg, [&](Ref) { ++tensors; });
    const Meaning* meaning = find_meaning(node.op);
    return tensors == 1 && meaning && meaning->element && meaning->pattern == Pattern::pointwise &&
           graph_.type(node.results[0]).sizes == graph_.type(node.args[0].get<Ref>().id).sizes &&
           can_lower(graph_, node);
  }

  // Then the view would be made by each run, and nothing is behind it.
  bool is_returned(ValueId value) const {
    return std::ranges::find(graph_.outputs, value) != graph_.outputs.end();
  }

  // Does a kernel compute it?
  bool is_computed(ValueId value) const {
    const Node* maker = writer_.maker(value);
    const Meaning* meaning = maker ? find_meaning(maker->op) : nullptr;
    return meaning && !maker->traits.view && maker->traits.is_pure() &&
           (meaning->element || meaning->reduction) && can_lower(graph_, *maker);
  }

  // What the value shows cut into more dimensions; -1: it does not do that.
  ValueId shown_by(ValueId value) const {
    const Node* view = writer_.maker(value);
    if (!view || (view->op != kView && view->op != kUnsafeView && view->op != kReshape)) return -1;
    const ValueId shown = view->args[0].get<Ref>().id;
    const TensorType &whole = graph_.type(shown), &cut = graph_.type(value);
    return is_row_major(whole) && is_row_major(cut) && is_cut(whole.sizes, cut.sizes) ? shown : -1;
  }

  bool move(const Node& node) {
    if (!is_unary(node) || is_returned(node.results[0])) return false;
    const ValueId shown = shown_by(node.args[0].get<Ref>().id);
    if (shown < 0 || !is_computed(shown)) return false;
    const TensorType type = graph_.type(node.results[0]);
    Node moved = node;
    moved.args[0] = Ref{shown};
    const std::vector<std::optional<TensorType>> types = writer_.types_of(moved.op, moved.args);
    if (types.size() != 1 || !types[0] || types[0]->dtype != type.dtype ||
        types[0]->sizes != graph_.type(shown).sizes || !is_row_major(*types[0]))
      return false;
    const NodeWriter::Mark mark = writer_.mark();
    moved.results[0] = static_cast<ValueId>(graph_.values.size());
    graph_.values.push_back({.type = *types[0]});
    const ValueId made = moved.results[0];
    writer_.keep(std::move(moved));
    ArgList sizes;
    for (const Size& size : type.sizes) sizes.emplace_back(size);
    const ValueId seen = writer_.call("aten::view", {Ref{made}, sizes}, /*is_view=*/true);
    if (seen < 0 || !(graph_.type(seen) == type)) {
      writer_.forget_since(mark);
      return false;
    }
    replacements_.put(node.results[0], seen);
    return true;
  }

  Graph& graph_;
  NodeWriter writer_;
  Replacements replacements_;
};

}  // namespace

bool compute_before_views(Graph& graph, const PassOptions& options) {
  if (!options.has_kernels) return false;
  Graph draft = graph;
  if (!Mover(draft).run()) return false;
  graph = std::move(draft);
  return true;
}

}  // namespace smelt
