#include <algorithm>
#include <functional>

#include "loops/simplify.h"

namespace smelt::loops {
namespace {

void mark_values(const Index& index, std::vector<bool>& used) {
  for (const Term& term : index.terms()) {
    if (term.atom.inner)
      mark_values(*term.atom.inner, used);
    else if (term.atom.kind == Atom::Kind::value)
      used[term.atom.id] = true;
  }
}

// Must it run even if nobody reads its value?
bool is_needed(const Kernel& kernel, const Inst& inst, const std::vector<bool>& read) {
  if (!has_effect(inst)) return false;
  if (inst.op == Op::store || inst.op == Op::accumulate)
    return kernel.buffers[inst.slot].kind != Buffer::Kind::scratch || read[inst.slot];
  if (inst.op == Op::check) return true;
  const Inst& divisor = kernel.insts[inst.args[1]];
  return divisor.op != Op::constant || divisor.integer == 0;
}

std::vector<bool> used_insts(const Kernel& kernel) {
  std::vector<bool> read(kernel.buffers.size(), false);
  for (const Inst& inst : kernel.insts) {
    if (inst.op == Op::load) read[inst.slot] = true;
  }
  std::vector<bool> used(kernel.insts.size(), false);
  for (size_t v = kernel.insts.size(); v-- > 0;) {
    const Inst& inst = kernel.insts[v];
    if (!used[v]) used[v] = is_needed(kernel, inst, read);
    if (!used[v]) continue;
    for (Val arg : inst.args) {
      if (arg >= 0) used[arg] = true;
    }
    mark_values(inst.index, used);
  }
  return used;
}

// Moves what is used to the front; each stage then ends where its last instruction went.
void compact(Kernel& kernel, const std::vector<bool>& used) {
  std::vector<Val> moved(kernel.insts.size(), -1);
  Val next = 0;
  for (Stage& stage : kernel.stages) {
    Val begin = next;
    for (Val v = stage.begin; v < stage.end; ++v) {
      if (!used[v]) continue;
      Inst& inst = kernel.insts[v];
      for (Val& arg : inst.args) {
        if (arg >= 0) arg = moved[arg];
      }
      inst.index = inst.index.renumber_values(moved);
      moved[v] = next;
      if (v != next) kernel.insts[next] = std::move(inst);
      ++next;
    }
    stage = {stage.inner, begin, next};
  }
  kernel.insts.resize(next);
}

}  // namespace

void remove_unused(Kernel& kernel) {
  std::vector<bool> used = used_insts(kernel);
  if (!std::all_of(used.begin(), used.end(), std::identity())) compact(kernel, used);
  std::erase_if(kernel.stages, [](const Stage& stage) { return stage.begin == stage.end; });
  // Nobody asks for the inner points any more.
  if (std::none_of(kernel.stages.begin(), kernel.stages.end(), std::mem_fn(&Stage::inner)))
    kernel.inner.clear();
}

}  // namespace smelt::loops
