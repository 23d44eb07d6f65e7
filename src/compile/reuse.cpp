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
  return all_known(a.sizes) && all_known(b.sizes) && a.numel() == b.numel() &&
         a.strides == contiguous_strides(a.sizes) && b.strides == contiguous_strides(b.sizes);
}

}  // namespace

std::vector<int> reusable_inputs(const Graph& graph, const ScheduledKernel& scheduled,
                                 const std::vector<bool>& dying, const std::vector<bool>& placed) {
  const Kernel& kernel = scheduled.kernel;
  std::vector<int> reused;
  std::vector<bool> taken(kernel.buffers.size());
  for (size_t output = 0; output < kernel.buffers.size(); ++output) {
    if (kernel.buffers[output].kind != loops::Buffer::Kind::output) continue;
    int found = -1;
    const bool wanted = !placed[output] && !reads_back(kernel, static_cast<int>(output));
    const Val store = wanted ? only_store(kernel, static_cast<int>(output)) : -1;
    for (size_t input = 0; store >= 0 && found < 0 && input < kernel.buffers.size(); ++input) {
      if (kernel.buffers[input].kind != loops::Buffer::Kind::input || !dying[input] || taken[input])
        continue;
      const TensorType& from = graph.type(scheduled.buffers[input]);
      const TensorType& to = graph.type(scheduled.buffers[output]);
      if (!as_large(from, to)) continue;
      if (reads_before(kernel, static_cast<int>(input), store)) found = static_cast<int>(input);
    }
    if (found >= 0) taken[found] = true;
    reused.push_back(found);
  }
  return reused;
}

bool may_overwrite(const Kernel& kernel, int input, int output) {
  const Val store = only_store(kernel, output);
  return store >= 0 && reads_before(kernel, input, store);
}

bool can_fail(const Kernel& kernel) {
  return std::ranges::any_of(kernel.insts, [](const Inst& inst) {
    return inst.op == Op::check ||
           ((inst.op == Op::div || inst.op == Op::mod) && !is_floating(inst.dtype));
  });
}

}  // namespace smelt
