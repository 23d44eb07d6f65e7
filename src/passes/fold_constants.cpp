// Nodes on constants are computed once, while compiling. Stands first: what is a constant needs no
// other pass. Not folded are
//  - results whose memory escapes or is changed: every call has to make a new one;
//  - results of more than 1 MiB, which would live as long as the program;
//  - factories (nodes without tensors): cheap to run, and as constants they would cost memory.

#include "base/error.h"
#include "graph/effects.h"
#include "passes/passes.h"
#include "passes/rewriting/ownership.h"
#include "passes/rewriting/replacements.h"

namespace smelt {
namespace {

const OpName kLiftFreshCopy("aten::lift_fresh_copy");
constexpr int64_t kMaxBytes = 1 << 20;

class Folder {
 public:
  Folder(Graph& graph, const Evaluator& evaluate)
      : graph_(graph), evaluate_(evaluate), own_(graph), is_constant_(graph.values.size()) {
    for (const Constant& constant : graph.constants) is_constant_[constant.value] = true;
  }

  bool run() {
    std::vector<bool> keep(graph_.nodes.size(), true);
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      Node& node = graph_.nodes[i];
      replacements_.apply(node);
      if (reads_constants_only(node) && results_may_be_shared(node)) keep[i] = !fold(node);
    }
    if (!replacements_.any()) return false;
    replacements_.apply(graph_.outputs);
    graph_.keep_nodes(keep);
    return true;
  }

 private:
  bool reads_constants_only(const Node& node) const {
    if (!node.traits.is_pure() || effects::is_mutator(node.op)) return false;
    bool any = false;
    bool all = true;
    for (const Arg& arg : node.args) {
      each_ref(arg, [&](Ref ref) {
        any = true;
        all &= is_constant_[ref.id];
      });
    }
    return any && all;
  }

  // Whether one tensor may stand for each result in all calls.
  bool results_may_be_shared(const Node& node) const {
    int64_t bytes = 0;
    bool any = false;
    for (ValueId result : node.results) {
      if (result < 0) continue;
      const TensorType& type = graph_.type(result);
      if (own_.escapes[result] || own_.mutated[result]) return false;
      const Size numel = type.numel();
      if (!numel.is_known() || !all_known(type.strides) || !type.offset.is_known()) return false;
      if (numel.known() > kMaxBytes) return false;  // and the product below stays in range
      bytes += numel.known() * bytes_of(type.dtype);
      any = true;
    }
    return any && bytes <= kMaxBytes;
  }

  bool fold(const Node& node) { return forward_copy(node) || evaluate(node); }

  // The copy that keeps a constant from being changed is not needed where nothing changes it.
  bool forward_copy(const Node& node) {
    if (node.op != kLiftFreshCopy || node.results.size() != 1) return false;
    const ValueId constant = node.args.at(0).get<Ref>().id;
    if (graph_.type(constant) != graph_.type(node.results[0])) return false;
    replacements_.put(node.results[0], constant);
    return true;
  }

  bool evaluate(const Node& node) {
    if (!evaluate_) return false;
    const auto folded = evaluate_(graph_, node);
    if (!folded) return false;
    SMELT_CHECK(folded->size() == node.results.size(),
                "one constant per result of " + node.op.str());
    for (size_t i = 0; i < folded->size(); ++i) {
      const ValueId result = node.results[i];
      if (result >= 0 && (*folded)[i].type != graph_.type(result)) return false;
    }
    for (size_t i = 0; i < folded->size(); ++i) {
      if (node.results[i] < 0) continue;
      const FoldedConstant& constant = (*folded)[i];
      const ValueId value = graph_.add_constant(constant.type, constant.data, constant.digest);
      is_constant_.resize(graph_.values.size());
      is_constant_[value] = true;
      replacements_.put(node.results[i], value);
    }
    return true;
  }

  Graph& graph_;
  const Evaluator& evaluate_;
  Ownership own_;  // of the values from before the pass: new constants are never asked about
  std::vector<bool> is_constant_;
  Replacements replacements_;
};

}  // namespace

bool fold_constants(Graph& graph, const PassOptions& options) {
  return Folder(graph, options.evaluate).run();
}

}  // namespace smelt
