#include "codegen/cpu/plan_large.h"

#include <algorithm>
#include <utility>

namespace smelt::cpu {

using loops::Buffer;
using loops::Inst;
using loops::Kernel;
using loops::Op;
using loops::Val;

namespace {

constexpr int64_t kSlicePoints = 32 * 1024;
constexpr int64_t kFewItems = 32;  // for the threads to share
constexpr int64_t kManyItems = 128;

bool reads(const Kernel& kernel, int32_t slot) {
  return std::any_of(kernel.insts.begin(), kernel.insts.end(), [&](const Inst& inst) {
    return inst.slot == slot && (inst.op == Op::load || inst.op == Op::accumulate);
  });
}

// Lines must be filled by stores that follow each other: the vector loop is the innermost one.
bool fills_lines(const Kernel& kernel, const Plan& plan, const loops::Stage& stage,
                 const Inst& store) {
  const auto stride = store.index.stride_of(plan.vector_dim);
  if (!stride || !stride->is(1)) return false;
  if (!plan.outer_vector) return stage.inner;
  if (!kernel.inner.empty()) return false;
  return plan.tile_dim < 0 || plan.lanes * bytes_of(store.dtype) >= 64;
}

Size points_of(const Kernel& kernel, const loops::Stage& stage) {
  return stage.inner ? product(kernel.outer) * product(kernel.inner) : product(kernel.outer);
}

// Is no element written twice? Each stride steps over all that the smaller ones reach.
bool is_injective(const Kernel& kernel, const loops::Index& index) {
  if (!index.is_affine() || index.uses_values()) return false;
  std::vector<std::pair<int64_t, int64_t>> strides;  // and extent
  for (int dim = 0; dim < kernel.dims(); ++dim) {
    if (kernel.extent(dim).is(1)) continue;
    const auto stride = index.stride_of(dim)->as_known();
    if (!stride || *stride <= 0) return false;
    strides.emplace_back(*stride, kernel.extent(dim).known());
  }
  std::sort(strides.begin(), strides.end());
  int64_t reach = 0;
  for (const auto& [stride, extent] : strides) {
    if (stride <= reach) return false;
    reach += stride * (extent - 1);
  }
  return true;
}

// One pass over the inner points, of which none needs what another has found or written.
bool can_slice(const Kernel& kernel, const Plan& plan) {
  if (kernel.ordered || kernel.inner.empty() || plan.tile_dim >= 0) return false;
  if (!all_known(kernel.outer) || !all_known(kernel.inner)) return false;
  // Scratch is a thread's own: what it writes others can't read. Updates have an order.
  for (const Buffer& buffer : kernel.buffers)
    if (buffer.kind == Buffer::Kind::scratch || buffer.kind == Buffer::Kind::updated) return false;
  int inner = 0, reductions = 0;
  for (const loops::Stage& stage : kernel.stages) {
    inner += stage.inner;
    for (Val v = stage.begin; v < stage.end; ++v) {
      const Inst& inst = kernel.insts[v];
      reductions += inst.op == Op::reduce;
      if (inst.op == Op::accumulate || inst.op == Op::scan) return false;
      if (inst.op == Op::load && kernel.buffers[inst.slot].kind != Buffer::Kind::input)
        return false;
      if (inst.op == Op::store && stage.inner && !is_injective(kernel, inst.index)) return false;
    }
  }
  return inner == 1 && reductions > 0;
}

void place_partials(const Kernel& kernel, Plan& plan) {
  plan.partial_offset.assign(kernel.insts.size(), -1);
  const int64_t results = plan.slices * product(kernel.outer).known();
  for (size_t v = 0; v < kernel.insts.size(); ++v) {
    const Inst& inst = kernel.insts[v];
    if (inst.op != Op::reduce) continue;
    plan.partial_offset[v] = static_cast<int64_t>(plan.partial_bytes);
    // A position stands behind the values, in 8 bytes at most.
    const int64_t width = bytes_of(kernel.insts[inst.args[0]].dtype) +
                          (loops::gives_position(inst.reduction) ? 8 : 0);
    plan.partial_bytes += static_cast<size_t>(results * width + 127) / 64 * 64;
  }
}

}  // namespace

void choose_streams(const Kernel& kernel, const CpuOptions& options, const HostTarget& host,
                    Plan& plan) {
  plan.streamed.assign(kernel.buffers.size(), false);
  const int64_t cached = options.stream_bytes > 0 ? options.stream_bytes : host.cache_bytes;
  if (plan.lanes == 1 || host.name == "none") return;
  std::vector<bool> streamed = plan.streamed;
  Size bytes = 0;
  for (const loops::Stage& stage : kernel.stages) {
    if (has_scan(kernel, stage)) return;  // goes point by point
    for (Val v = stage.begin; v < stage.end; ++v) {
      const Inst& inst = kernel.insts[v];
      if (inst.op != Op::store || kernel.buffers[inst.slot].kind != Buffer::Kind::output ||
          reads(kernel, inst.slot) || !fills_lines(kernel, plan, stage, inst))
        continue;
      streamed[inst.slot] = true;
      bytes = bytes + points_of(kernel, stage) * bytes_of(inst.dtype);
    }
  }
  if (!bytes.is_known() || bytes.known() <= cached) return;
  plan.streamed = std::move(streamed);
}

void choose_slices(const Kernel& kernel, const CpuOptions& options, Plan& plan) {
  if (!can_slice(kernel, plan)) return;
  const int64_t items = plan.items.known();
  const int64_t points = product(kernel.outer).known() * product(kernel.inner).known();
  if (items == 0 || points == 0 || items >= kFewItems) return;
  int dim = static_cast<int>(kernel.outer.size());
  for (int other = dim; other < kernel.dims(); ++other)
    if (kernel.extent(other).known() > kernel.extent(dim).known()) dim = other;
  const int64_t extent = kernel.extent(dim).known();
  const int64_t step = dim == plan.vector_dim ? int64_t{plan.lanes} * plan.packs : 1;
  const int64_t least = options.slice_points > 0 ? options.slice_points : kSlicePoints;
  const int64_t wanted = std::min({kManyItems / items, points / least, extent / step});
  if (wanted < 2) return;
  const auto round_up = [](int64_t n, int64_t to) { return (n + to - 1) / to * to; };
  const int64_t slice = round_up((extent + wanted - 1) / wanted, step);
  const int64_t slices = (extent + slice - 1) / slice;
  if (slices < 2) return;
  plan.slice_dim = dim;
  plan.slice = slice;
  plan.slices = slices;
  const int64_t per_unit = (items + plan.units.known() - 1) / plan.units.known();
  plan.units = items * slices;
  plan.unit_cost = std::max<int64_t>(1, plan.unit_cost.known() / (slices * per_unit));
  place_partials(kernel, plan);
}

}  // namespace smelt::cpu
