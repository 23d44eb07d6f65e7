// Views of views. Stands before merge_equal, which then finds more arguments equal.
//
// A chain of views shows one storage, and a TensorType says exactly which elements of it, in which
// order: dtype, offset, sizes, strides, conjugate and negative bits. So no table of ops is needed:
//
//   1. a view of the same type as a value further up its chain is that value
//      (t(t(x)), transpose twice, detach, alias, view to the same sizes, expand to the same sizes,
//      permute by the identity, slice over all, squeeze after unsqueeze, conj twice);
//   2. view(v, sizes) is view(x, sizes) where v shows all that x shows, both contiguous;
//   3. permute(permute(x, p), q) is permute(x, q after p).
//
// Every reader gets a tensor of the very same type over the same memory, so the same kernels run on
// the same bits. For whoever changes this:
//
//   - Equal means Size's equal: the same normal form. Hints that agree prove nothing.
//   - A view that is handed out stays a view: the caller would get his own tensor, not an alias.
//   - Views between an input and an output stay as they are: autograd sees them (visible_views).
//   - A chain ends at a write, whose result shows the memory at another time, and at as_strided,
//     which counts from the start of the storage: in the next call an input may start elsewhere.

#include <utility>

#include "ops/rules/layout.h"
#include "passes/passes.h"
#include "passes/rewriting/ownership.h"
#include "passes/rewriting/replacements.h"

namespace smelt {
namespace {

const OpName kAsStrided("aten::as_strided");
const OpName kPermute("aten::permute");
const OpName kView("aten::view");
const OpName kUnsafeView("aten::_unsafe_view");
const OpName kReshape("aten::reshape");

// Whether both, contiguous, show the same elements in the same order, given that they share a
// storage.
bool shows_the_same(const TensorType& a, const TensorType& b) {
  return a.dtype == b.dtype && a.device == b.device && a.offset == b.offset && a.conj == b.conj &&
         a.neg == b.neg && a.wrapped_number == b.wrapped_number && a.numel() == b.numel() &&
         is_row_major(a) && is_row_major(b);
}

// The dimensions of a permute, counted from the front; nothing if one of them is not a known
// integer.
std::optional<std::vector<size_t>> permutation(const Node& node) {
  if (node.args.size() != 2 || !node.args[1].is<ArgList>()) return std::nullopt;
  const ArgList& list = node.args[1].get<ArgList>();
  const auto rank = static_cast<int64_t>(list.size());
  std::vector<size_t> dims;
  for (const Arg& arg : list) {
    if (!arg.is<Size>() || !arg.get<Size>().is_known()) return std::nullopt;
    const int64_t dim = arg.get<Size>().known();
    if (dim < -rank || dim >= rank) return std::nullopt;
    dims.push_back(static_cast<size_t>(dim < 0 ? dim + rank : dim));
  }
  return dims;
}

class Simplifier {
 public:
  explicit Simplifier(Graph& graph)
      : graph_(graph), handed_out_(Ownership(graph).handed_out), visible_(visible_views(graph)) {}

  bool run() {
    std::vector<bool> keep(graph_.nodes.size(), true);
    bool changed = false;
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      Node& node = graph_.nodes[i];
      replacements_.apply(node);
      if (!is_chain_link(node) || visible_[i]) continue;
      if (const ValueId same = same_above(node); same >= 0) {
        replacements_.put(node.results[0], same);
        keep[i] = false;
      } else {
        changed |= view_of_contiguous(node) || compose_permutes(node);
      }
    }
    if (!replacements_.any()) return changed;
    replacements_.apply(graph_.outputs);
    graph_.keep_nodes(keep);
    return true;
  }

 private:
  // A view of one tensor that says where it looks relative to that tensor.
  static bool is_chain_link(const Node& node) {
    return node.traits.view && node.traits.is_pure() && node.op != kAsStrided &&
           node.results.size() == 1 && node.results[0] >= 0 && !node.args.empty() &&
           node.args[0].is<Ref>();
  }

  // The node that made the value, if it is a link of a chain of views.
  const Node* link_of(ValueId value) const {
    const NodeId maker = graph_.values[value].node;
    return maker >= 0 && is_chain_link(graph_.nodes[maker]) ? &graph_.nodes[maker] : nullptr;
  }

  // Calls `visit` on what the node is a view of, and what that is a view of, until it says stop.
  template <class Visit>
  void walk_up(const Node& node, Visit visit) const {
    for (const Node* link = &node; link;) {
      const ValueId above = link->args[0].get<Ref>().id;
      if (!visit(above)) return;
      link = link_of(above);
    }
  }

  // Rule 1: the furthest value of the same type, -1 if there is none.
  ValueId same_above(const Node& node) const {
    const ValueId result = node.results[0];
    if (handed_out_[result]) return -1;
    ValueId same = -1;
    walk_up(node, [&](ValueId above) {
      if (graph_.type(above) == graph_.type(result)) same = above;
      return true;
    });
    return same;
  }

  // Rule 2.
  bool view_of_contiguous(Node& node) {
    if (node.op != kView && node.op != kUnsafeView && node.op != kReshape) return false;
    const TensorType& type = graph_.type(node.results[0]);
    Ref& of = std::get<Ref>(node.args[0]);
    ValueId furthest = of.id;
    walk_up(node, [&](ValueId above) {
      const bool same = shows_the_same(graph_.type(above), type);
      if (same) furthest = above;
      return same;
    });
    return std::exchange(of.id, furthest) != furthest;
  }

  // Rule 3.
  bool compose_permutes(Node& node) {
    if (node.op != kPermute) return false;
    const Node* inner = link_of(node.args[0].get<Ref>().id);
    if (!inner || inner->op != kPermute) return false;
    const auto first = permutation(*inner);
    const auto second = permutation(node);
    if (!first || !second || first->size() != second->size()) return false;
    ArgList dims;
    for (size_t dim : *second) dims.emplace_back(Size(static_cast<int64_t>((*first)[dim])));
    node.args = {inner->args[0], std::move(dims)};
    return true;
  }

  Graph& graph_;
  std::vector<bool> handed_out_;
  std::vector<bool> visible_;
  Replacements replacements_;
};

}  // namespace

bool simplify_views(Graph& graph, const PassOptions&) { return Simplifier(graph).run(); }

}  // namespace smelt
