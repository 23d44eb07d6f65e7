// A write(%input, %value) at the end of a graph copies. The kernel that computes %value can store
// it into the input's memory itself if nobody can tell:
//
// 1. Nothing may fail from that kernel on. A run that failed has changed nothing, and is done again
//    op by op. (The schedule puts the kernels of written values last for this.)
// 2. What the input held is not read any more: not by a unit that comes later, and by the kernel
//    itself only at the element that it writes, and before it does.
// 3. The value does not leave the graph as a tensor of its own.
// 4. Input and value have the same elements in the same places.
//
// Elsewhere than on the host an update of the input itself, which puts elements into its memory and
// reads none (a key at its place in a cache), may be followed by calls that fail: a run that is made
// again puts the same elements there. Nobody else may have read what the input held, also not
// before, and no check may come, for then another run may be the right one.
//
// Who reads the value afterwards reads it in the input's memory; no one else writes there. The
// write itself stays where it is: it tells autograd that the tensor has changed.
//
// All is asked of the order that the schedule has given: a write for which it does not hold copies.

#include "compile/in_place.h"

#include <algorithm>

#include "compile/reuse.h"
#include "graph/alias.h"
#include "graph/effects.h"
#include "graph/numbers.h"

namespace smelt {
namespace {

using Kind = loops::Buffer::Kind;

bool unit_can_fail(const Graph& graph, const Schedule& schedule, const Unit& unit) {
  if (unit.kernel >= 0) return can_fail(schedule.kernels[unit.kernel]);
  const Node& node = graph.nodes[unit.node];
  if (node.traits.effect) return node.op == effects::kExpectNoGrad || numbers::is_check(node.op);
  return !node.traits.view || !node.traits.is_pure();
}

class InPlace {
 public:
  InPlace(const Graph& graph, const Schedule& schedule)
      : graph_(graph),
        schedule_(schedule),
        roots_(view_roots(graph)),
        escapes_(escaping_roots(graph)),
        is_input_(graph.values.size()),
        maker_(graph.values.size(), -1),
        old_reads_(graph.values.size()) {
    for (const Input& input : graph.inputs) is_input_[input.value] = true;
    find_changed();
    for (size_t i = 0; i < schedule.order.size(); ++i) look_at(static_cast<int>(i));
  }

  std::vector<ValueId> run() {
    std::vector<ValueId> target(graph_.values.size(), -1);
    std::vector<int> writes(graph_.values.size());
    for (const Node& node : graph_.nodes)
      if (node.op == effects::kWrite) ++writes[roots_[node.args[0].get<Ref>().id]];
    for (const Node& node : graph_.nodes) {
      if (node.op != effects::kWrite) continue;
      const ValueId input = node.args[0].get<Ref>().id, value = node.args[1].get<Ref>().id;
      if (is_input_[input] && writes[input] == 1 && target[value] < 0 && may_store(value, input))
        target[value] = input;
    }
    return target;
  }

 private:
  // Values that show an input's memory as it is after a write.
  void find_changed() {
    changed_.resize(graph_.values.size());
    for (const Node& node : graph_.nodes) {
      if (!node.traits.view) continue;
      const bool changed = node.op == effects::kWrite || changed_[viewed(node)];
      for (const ValueId result : node.results)
        if (result >= 0) changed_[result] = changed;
    }
  }

  void look_at(int position) {
    const Unit& unit = schedule_.order[position];
    if (unit_can_fail(graph_, schedule_, unit)) last_to_fail_ = position;
    if (unit.node >= 0 ? graph_.nodes[unit.node].traits.effect : on_host(unit.kernel))
      if (unit_can_fail(graph_, schedule_, unit)) last_check_ = position;
    const auto read = [&](ValueId value) {
      if (!changed_[value] && is_input_[roots_[value]])
        old_reads_[roots_[value]].push_back(position);
    };
    if (unit.kernel >= 0) {
      const ScheduledKernel& scheduled = schedule_.kernels[unit.kernel];
      for (size_t i = 0; i < scheduled.buffers.size(); ++i) {
        if (scheduled.buffers[i] < 0) continue;
        if (scheduled.kernel.buffers[i].kind == Kind::input)
          read(scheduled.buffers[i]);
        else
          maker_[scheduled.buffers[i]] = position;
        if (scheduled.bases[i] >= 0) read(scheduled.bases[i]);
      }
      return;
    }
    const Node& node = graph_.nodes[unit.node];
    if (node.op == effects::kWrite) {
      read(node.args[1].get<Ref>().id);
    } else if (!node.traits.effect) {  // those of gradients take a tensor and look at no element
      for (const Arg& arg : node.args) each_ref(arg, [&](Ref ref) { read(ref.id); });
    }
  }

  bool on_host(int32_t kernel) const {
    const Backend* backend = schedule_.kernels[kernel].backend;
    return backend == nullptr || backend->runs_on_host();
  }

  // Does the kernel there put elements into the input, and nobody else look at what that held?
  bool overwrites(ValueId value, ValueId input, int position) const {
    const int32_t number = schedule_.order[position].kernel;
    const ScheduledKernel& scheduled = schedule_.kernels[number];
    const auto slot = std::ranges::find(scheduled.buffers, value) - scheduled.buffers.begin();
    if (scheduled.kernel.buffers[slot].kind != Kind::updated || scheduled.bases[slot] != input ||
        on_host(number) || old_reads_[input].size() != 1)
      return false;
    return std::ranges::none_of(scheduled.kernel.insts, [&](const loops::Inst& inst) {
      return inst.slot == slot && (inst.op == loops::Op::load || inst.op == loops::Op::accumulate);
    });
  }

  bool may_store(ValueId value, ValueId input) const {
    const int position = maker_[value];
    if (position < 0 || escapes_[value]) return false;
    const bool updates = overwrites(value, input, position);
    if (position <= (updates ? last_check_ : last_to_fail_)) return false;
    const TensorType &from = graph_.type(value), &to = graph_.type(input);
    if (from.dtype != to.dtype || from.sizes != to.sizes || from.strides != to.strides ||
        from.device != to.device || from.conj != to.conj || from.neg != to.neg)
      return false;
    if (updates) return true;
    if (std::ranges::any_of(old_reads_[input], [&](int read) { return read > position; }))
      return false;
    const ScheduledKernel& scheduled = schedule_.kernels[schedule_.order[position].kernel];
    const auto output = std::ranges::find(scheduled.buffers, value) - scheduled.buffers.begin();
    // An update begins as a copy of its base, or as zeros, before anything of its batch has run.
    if (scheduled.kernel.buffers[output].kind != Kind::output) return false;
    for (size_t i = 0; i < scheduled.buffers.size(); ++i) {
      const ValueId other = scheduled.buffers[i];
      if (scheduled.bases[i] >= 0 && roots_[scheduled.bases[i]] == input) return false;
      if (other < 0 || scheduled.kernel.buffers[i].kind != Kind::input || roots_[other] != input)
        continue;
      // Another view of it as a buffer of its own: the places can't be compared.
      if (other != input ||
          !may_overwrite(scheduled.kernel, static_cast<int>(i), static_cast<int>(output)))
        return false;
    }
    return true;
  }

  const Graph& graph_;
  const Schedule& schedule_;
  const std::vector<ValueId> roots_;
  const std::vector<bool> escapes_;
  std::vector<bool> is_input_, changed_;
  std::vector<int> maker_;                   // by value: the position of the kernel that stores it
  std::vector<std::vector<int>> old_reads_;  // by input: positions of who reads what it held
  int last_to_fail_ = -1, last_check_ = -1;
};

}  // namespace

std::vector<ValueId> stored_in_place(const Graph& graph, const Schedule& schedule) {
  return InPlace(graph, schedule).run();
}

}  // namespace smelt
