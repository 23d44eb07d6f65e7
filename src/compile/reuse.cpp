#include "compile/reuse.h"

#include <algorithm>

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

// The one store to the buffer; -1 if there are several, or the kernel reads it back.
Val only_store(const Kernel& kernel, int buffer) {
  Val found = -1;
  for (size_t i = 0; i < kernel.insts.size(); ++i) {
    const Inst& inst = kernel.insts[i];
    if (inst.slot != buffer) continue;
    if (inst.op == Op::load || inst.op == Op::accumulate) return -1;
    if (inst.op != Op::store) continue;
    if (found >= 0) return -1;
    found = static_cast<Val>(i);
  }
  return found;
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
  if (a.dtype != b.dtype || !a.offset.is(0)) return false;
  if (a.sizes == b.sizes && a.strides == b.strides) return true;
  return all_known(a.sizes) && all_known(b.sizes) && a.numel() == b.numel() &&
         a.strides == contiguous_strides(a.sizes) && b.strides == contiguous_strides(b.sizes);
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

}  // namespace

std::vector<ValueId> reusable_values(const Graph& graph, const ScheduledKernel& scheduled,
                                     const std::function<bool(ValueId)>& dies) {
  std::vector<ValueId> reused, taken;
  const auto may_take = [&](ValueId value) {
    return dies(value) && std::ranges::find(taken, value) == taken.end();
  };
  for (size_t i = 0; i < scheduled.kernel.buffers.size(); ++i) {
    ValueId found = -1;
    switch (scheduled.kernel.buffers[i].kind) {
      case loops::Buffer::Kind::output:
        found = input_for(graph, scheduled, static_cast<int>(i), may_take);
        break;
      case loops::Buffer::Kind::updated: {
        const ValueId base = scheduled.bases[i];
        // What it also reads elsewhere must stay as it is.
        const bool only_base =
            std::ranges::find(scheduled.buffers, base) == scheduled.buffers.end();
        if (base >= 0 && only_base && may_take(base) &&
            as_large(graph.type(base), graph.type(scheduled.buffers[i])))
          found = base;
        break;
      }
      default: continue;
    }
    if (found >= 0) taken.push_back(found);
    reused.push_back(found);
  }
  return reused;
}

}  // namespace smelt
