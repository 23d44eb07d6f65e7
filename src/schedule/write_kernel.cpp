// A group becomes stages by depth. Depth is how many reductions of the group stand one behind the
// other before a node: what needs no reduction has depth 0, what reads one of depth 0 has depth 1.
// Depth d is an outer stage (values per outer point, results of reductions stored) and an inner one
// (values per point, reductions and scans of depth d).
//
// A value per point that a later stage reads again is computed again there, if that is cheap (its
// inputs are in the cache by then); else it is kept: read back from the output it is stored to, or
// from a scratch row.

#include "schedule/write_kernel.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "loops/simplify.h"
#include "schedule/kernel_buffers.h"

namespace smelt {
namespace {

// Computing again costs at most this much per element; loading is about 2.
constexpr int kCheap = 10;

class KernelWriter {
 public:
  KernelWriter(const Graph& graph, const Roles& roles, const Grouping& grouping, int group,
               const std::vector<bool>& stored)
      : graph_(graph),
        roles_(roles),
        grouping_(grouping),
        group_id_(group),
        group_(grouping.groups()[group]),
        stored_(stored),
        builder_(made_.kernel),
        buffers_(graph, roles, made_, builder_) {}

  ScheduledKernel run() {
    made_.nodes = group_.nodes;
    made_.kernel.name = kernel_name(graph_, group_.nodes);
    made_.kernel.outer = group_.domain.outer();
    made_.kernel.inner = group_.domain.inner();
    for (NodeId node : group_.nodes) place(node);
    find_kept();
    int deepest = 0;
    for (const auto& [node, member] : members_) deepest = std::max(deepest, member.depth);
    for (depth_ = 0; depth_ <= deepest + 1; ++depth_) {
      write_outer_stage();
      write_inner_stage();
    }
    loops::simplify(made_.kernel);
    return std::move(made_);
  }

 private:
  struct Member {
    Place place;
    int depth = 0;  // of a reduction: of the stage that combines; its result is there one later
    int cost = 0;   // of computing one element from what is loaded or kept
    std::vector<ValueId> reads;  // of this group
  };

  bool is_reduction(NodeId node) const { return roles_.role[node] == Role::reduction; }
  // Is there a value only when the stage that computes it has ended? (A scan's could be had before,
  // but its stage goes point by point, and what reads it need not.)
  bool ends_stage(NodeId node) const { return roles_.form[node].has_value(); }
  ValueId result(NodeId node) const { return graph_.nodes[node].results[0]; }
  NodeId producer_here(ValueId value) const {
    const NodeId node = graph_.values[value].node;
    return node >= 0 && grouping_.group_of(node) == group_id_ ? node : -1;
  }

  void place(NodeId node) {
    Member member;
    member.place = *place_in(graph_, roles_, node, group_.domain);
    member.cost = roles_.meaning[node]->cost;
    for (const Read& read : grouping_.reads(node, group_.domain)) {
      const NodeId producer = producer_here(read.value);
      if (producer < 0) continue;
      const Member& before = members_.at(producer);
      member.reads.push_back(read.value);
      member.depth = std::max(member.depth, before.depth + (ends_stage(producer) ? 1 : 0));
      if (!before.place.outer && !is_reduction(producer)) member.cost += before.cost;
    }
    members_.emplace(node, std::move(member));
  }

  // Values per point that a later stage reads and that are dear to compute again.
  void find_kept() {
    if (made_.kernel.inner.empty()) return;
    for (const auto& [node, member] : members_) {
      for (ValueId value : member.reads) {
        const NodeId producer = producer_here(value);
        const Member& before = members_.at(producer);
        if (is_reduction(producer) || before.place.outer || before.depth >= member.depth ||
            before.cost <= kCheap)
          continue;
        kept_.emplace(value, -1);
      }
    }
  }

  // --- stages ---

  void begin(bool inner) {
    builder_.begin_stage(inner);
    here_.clear();
  }

  void write_outer_stage() {
    bool begun = false;
    const auto open = [&] {
      if (!begun) begin(false);
      begun = true;
    };
    for (NodeId node : group_.nodes) {
      const Member& member = members_.at(node);
      if (is_reduction(node) && member.depth == depth_ - 1 && stored_[result(node)]) {
        open();
        store(node, {&builder_, per_outer_.at(result(node))});
      }
      if (is_reduction(node) || !writes_outer(member) || member.depth != depth_) continue;
      open();
      const Expr element = pull(node, member.place.at);
      per_outer_[result(node)] = element.value;
      if (stored_[result(node)]) store(node, element);
    }
  }
  // Without inner dimensions everything is per outer point.
  bool writes_outer(const Member& member) const {
    return member.place.outer || made_.kernel.inner.empty();
  }

  void write_inner_stage() {
    std::vector<NodeId> wanted;
    for (NodeId node : group_.nodes) {
      const Member& member = members_.at(node);
      if (member.depth != depth_) continue;
      if (is_reduction(node) ||
          (!writes_outer(member) && (stored_[result(node)] || kept_.contains(result(node)))))
        wanted.push_back(node);
    }
    if (wanted.empty()) return;
    begin(true);
    for (NodeId node : wanted) is_reduction(node) ? reduce(node) : keep(node);
  }

  void reduce(NodeId node) {
    const ReductionForm& form = *roles_.form[node];
    const ValueId argument = graph_.nodes[node].args[0].get<Ref>().id;
    Expr element =
        pull_value(graph_, roles_, argument, members_.at(node).place.at, builder_, read_);
    const bool logical =
        form.reduction == loops::Reduction::any || form.reduction == loops::Reduction::all;
    element = element.to(logical ? DType::b8 : form.accumulate);
    const Expr combined{&builder_, builder_.reduce(form.reduction, element.value)};
    per_outer_[result(node)] = combined.value;
  }

  void keep(NodeId node) {
    const Expr element = pull(node, members_.at(node).place.at);
    const ValueId value = result(node);
    if (stored_[value]) store(node, element);
    const auto kept = kept_.find(value);
    if (kept == kept_.end()) return;
    if (stored_[value]) {
      kept->second = buffers_.of(value, loops::Buffer::Kind::output);
      return;
    }
    kept->second = buffers_.scratch(graph_.type(value).dtype, product(made_.kernel.inner));
    scratch_.insert(value);
    builder_.store(kept->second, scratch_index(), element.value);
  }

  void store(NodeId node, Expr element) {
    const ValueId value = result(node);
    buffers_.store(value, result_index(graph_, roles_, node, group_.domain), element);
  }

  // --- elements ---

  Expr pull(NodeId node, const Indices& at) {
    const ValueId value = result(node);
    if (const auto found = here_.find(value); found != here_.end())
      return {&builder_, found->second};
    const Expr element = roles_.role[node] == Role::scan
                             ? scanned(node)
                             : pull_node(graph_, roles_, node, at, builder_, read_);
    here_[value] = element.value;
    return element;
  }

  Expr scanned(NodeId node) {
    const ReductionForm& form = *roles_.form[node];
    const ValueId argument = graph_.nodes[node].args[0].get<Ref>().id;
    const DType dtype = graph_.type(result(node)).dtype;
    const Expr element =
        pull_value(graph_, roles_, argument, members_.at(node).place.at, builder_, read_);
    const loops::Val value = element.to(dtype).to(form.accumulate).value;
    return Expr{&builder_, builder_.scan(form.reduction, value)}.to(dtype);
  }

  Expr read(ValueId value, const Indices& at) {
    const NodeId producer = producer_here(value);
    if (producer < 0) return buffers_.load(value, at);
    if (const auto known = per_outer_.find(value); known != per_outer_.end())
      return Expr{&builder_, known->second}.to(graph_.type(value).dtype);
    const Member& member = members_.at(producer);
    if (const auto kept = kept_.find(value); kept != kept_.end() && member.depth < depth_) {
      const Index index = scratch_.contains(value)
                              ? scratch_index()
                              : loops::linear(member.place.at, graph_.type(value).strides);
      return {&builder_, builder_.load(kept->second, index)};
    }
    return pull(producer, member.place.at);
  }

  // Of a dimension of size 1 it is 0, so that it is known in an outer stage too: a scalar that is
  // the only element of a row may be read there.
  Index scratch_index() const {
    Indices at;
    for (size_t d = 0; d < made_.kernel.inner.size(); ++d)
      at.push_back(made_.kernel.inner[d].is(1)
                       ? Index(0)
                       : Index::dim(static_cast<int32_t>(made_.kernel.outer.size() + d)));
    return loops::ravel(at, made_.kernel.inner);
  }

  const Graph& graph_;
  const Roles& roles_;
  const Grouping& grouping_;
  const int group_id_;
  const Group& group_;
  const std::vector<bool>& stored_;
  ScheduledKernel made_;
  loops::Builder builder_;
  KernelBuffers buffers_;
  const ReadElement read_ = [this](ValueId value, const Indices& at) { return read(value, at); };

  std::map<NodeId, Member> members_;
  std::map<ValueId, int32_t> kept_;  // the buffer it is read back from, once it is written
  std::set<ValueId> scratch_;        // kept values that have a row of their own
  std::map<ValueId, loops::Val> per_outer_;
  std::map<ValueId, loops::Val> here_;  // computed in the current stage
  int depth_ = 0;
};

}  // namespace

ScheduledKernel write_kernel(const Graph& graph, const Roles& roles, const Grouping& grouping,
                             int group, const std::vector<bool>& stored) {
  return KernelWriter(graph, roles, grouping, group, stored).run();
}

}  // namespace smelt
