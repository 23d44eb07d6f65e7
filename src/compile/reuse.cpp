#include "compile/reuse.h"

#include <algorithm>

#include "loops/may_fail.h"

namespace smelt {
namespace {

using loops::Inst;
using loops::Kernel;
using loops::Op;
using loops::Val;

int stage_of(const Kernel& kernel, Val value) {
  for (size_t i = 0; i < kernel.stages.size(); ++i)
    if (value < kernel.stages[i].end) return static_cast<int>(i);
  return -1;
}

// The one store to the buffer; -1 if there are several.
Val only_store(const Kernel& kernel, int buffer) {
  Val found = -1;
  for (size_t i = 0; i < kernel.insts.size(); ++i) {
    const Inst& inst = kernel.insts[i];
    if (inst.slot != buffer) continue;
    if (inst.op == Op::accumulate) return -1;
    if (inst.op != Op::store) continue;
    if (found >= 0) return -1;
    found = static_cast<Val>(i);
  }
  return found;
}

bool reads_back(const Kernel& kernel, int buffer) {
  return std::ranges::any_of(
      kernel.insts, [&](const Inst& inst) { return inst.op == Op::load && inst.slot == buffer; });
}

// The store overwrites each element of the input only when the kernel has read it for the last
// time.
bool reads_before(const Kernel& kernel, int input, Val store) {
  const int stage = stage_of(kernel, store);
  for (size_t i = 0; i < kernel.insts.size(); ++i) {
    const Inst& inst = kernel.insts[i];
    if (inst.op != Op::load || inst.slot != input) continue;
    if (!(inst.index == kernel.insts[store].index)) return false;
    const Val load = static_cast<Val>(i);
    if (stage_of(kernel, load) > stage || (stage_of(kernel, load) == stage && load > store))
      return false;
  }
  return true;
}

// The same memory for both, element by element: equal strides, or both row-major. (The index says
// that they are walked alike.)
bool as_large(const TensorType& a, const TensorType& b) {
  if (a.dtype != b.dtype || !a.offset.is(0) || a.wrapped_number) return false;
  if (a.sizes == b.sizes && a.strides == b.strides) return true;
  return a.numel() == b.numel() && a.strides == contiguous_strides(a.sizes) &&
         b.strides == contiguous_strides(b.sizes);
}

// The input whose memory an output may take.
ValueId input_for(const Graph& graph, const ScheduledKernel& scheduled, int output,
                  const std::function<bool(ValueId)>& may_take) {
  const Kernel& kernel = scheduled.kernel;
  const Val store = only_store(kernel, output);
  for (size_t input = 0; store >= 0 && input < kernel.buffers.size(); ++input) {
    const ValueId value = scheduled.buffers[input];
    if (kernel.buffers[input].kind != loops::Buffer::Kind::input || !may_take(value)) continue;
    if (!as_large(graph.type(value), graph.type(scheduled.buffers[output]))) continue;
    if (reads_before(kernel, static_cast<int>(input), store)) return value;
  }
  return -1;
}

// May an updated buffer be the memory of what it begins as? What the kernel also reads elsewhere
// must stay as it is.
bool may_take_base(const Graph& graph, const ScheduledKernel& scheduled, int buffer) {
  const ValueId base = scheduled.bases[buffer];
  return base >= 0 && std::ranges::find(scheduled.buffers, base) == scheduled.buffers.end() &&
         std::ranges::count(scheduled.bases, base) == 1 &&
         as_large(graph.type(base), graph.type(scheduled.buffers[buffer]));
}

}  // namespace

std::vector<ValueId> reusable_values(const Graph& graph, const ScheduledKernel& scheduled,
                                     const std::function<bool(ValueId)>& dies,
                                     const std::vector<bool>& placed) {
  const Kernel& kernel = scheduled.kernel;
  std::vector<ValueId> reused, taken;
  const auto may_take = [&](ValueId value) {
    return dies(value) && std::ranges::find(taken, value) == taken.end();
  };
  for (size_t i = 0; i < kernel.buffers.size(); ++i) {
    const int buffer = static_cast<int>(i);
    ValueId found = -1;
    switch (kernel.buffers[i].kind) {
      case loops::Buffer::Kind::output:
        if (!placed[i] && !reads_back(kernel, buffer))
          found = input_for(graph, scheduled, buffer, may_take);
        break;
      case loops::Buffer::Kind::updated:
        if (may_take_base(graph, scheduled, buffer) && may_take(scheduled.bases[i]))
          found = scheduled.bases[i];
        break;
      default: continue;
    }
    if (found >= 0) taken.push_back(found);
    reused.push_back(found);
  }
  return reused;
}

bool may_overwrite(const Kernel& kernel, int input, int output) {
  const Val store = only_store(kernel, output);
  return store >= 0 && reads_before(kernel, input, store);
}

bool can_fail(const ScheduledKernel& scheduled) {
  if (!scheduled.backend->runs_on_host()) return false;  // and nobody would hear of it
  return loops::may_fail(scheduled.kernel);
}

}  // namespace smelt
