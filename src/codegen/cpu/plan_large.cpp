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
// bench/cpu_kernels.cpp, rows "stream", shows what another distance does.
constexpr int64_t kAheadBytes = 4096;
constexpr int64_t kLongestAhead = 256 * 1024;  // it has to stay in the second-level cache

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

// Of the elements a load reads; 0: not known.
int64_t bytes_walked(const Kernel& kernel, const Inst& load) {
  if (!load.index.is_affine() || load.index.uses_values()) return 0;
  int64_t bytes = bytes_of(load.dtype);
  for (int dim = 0; dim < kernel.dims(); ++dim) {
    const Size& extent = kernel.extent(dim);
    const auto stride = load.index.stride_of(dim);
    if (!stride || !stride->is_known() || !extent.is_known()) return 0;
    if (!stride->is(0)) bytes *= extent.known();
  }
  return bytes;
}

// From an element that a load reads to the one that should be on its way by then; 0: none. A row
// that is read again is in the caches the last time: that is when the next one is fetched.
int64_t bytes_ahead(const Kernel& kernel, const Plan& plan, const Inst& load, bool again) {
  const auto along = load.index.stride_of(plan.vector_dim);
  if (!along || !along->is(1)) return 0;
  const int64_t width = bytes_of(load.dtype);
  const int outer = static_cast<int>(kernel.outer.size());
  if (plan.outer_vector) {
    // Below columns, the rows of the matrix follow each other closely or not at all.
    const bool near = kernel.inner.empty() ||
                      load.index.stride_of(kernel.dims() - 1)->known() * width <= kAheadBytes;
    return near ? kAheadBytes : 0;
  }
  if (!again) return kAheadBytes;
  const int64_t row = outer == 0 ? 0 : load.index.stride_of(outer - 1)->known() * width;
  if (row <= 0 || row > kLongestAhead) return 0;
  return (kAheadBytes / 2 + row - 1) / row * row;
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

void choose_streams(const Kernel& kernel, const Kernel& likely, const CpuOptions& options,
                    const HostTarget& host, Plan& plan) {
  plan.streamed.assign(kernel.buffers.size(), false);
  const int64_t cached = options.stream_bytes > 0 ? options.stream_bytes : host.cache_bytes;
  if (plan.lanes == 1 || host.name == "none") return;
  std::vector<bool> streamed = plan.streamed;
  Size bytes = 0;
  int64_t width = 0;  // of what is written for a point
  for (const loops::Stage& stage : kernel.stages) {
    if (has_scan(kernel, stage)) return;  // goes point by point
    for (Val v = stage.begin; v < stage.end; ++v) {
      const Inst& inst = kernel.insts[v];
      if (inst.op != Op::store || kernel.buffers[inst.slot].kind != Buffer::Kind::output ||
          reads(kernel, inst.slot) || !fills_lines(kernel, plan, stage, inst))
        continue;
      streamed[inst.slot] = true;
      bytes = bytes + points_of(likely, stage) * bytes_of(inst.dtype);
      width += bytes_of(inst.dtype);
    }
  }
  if (!bytes.is_known() || bytes.known() <= cached) return;
  plan.streamed = std::move(streamed);
  plan.streamed_points = cached / width;
}

void choose_prefetches(const Kernel& kernel, const CpuOptions& options, const HostTarget& host,
                       Plan& plan) {
  plan.ahead.assign(kernel.insts.size(), 0);
  const int64_t cached = options.stream_bytes > 0 ? options.stream_bytes : host.cache_bytes;
  if (plan.lanes == 1 || plan.tile_dim >= 0 || host.name == "none") return;
  for (size_t slot = 0; slot < kernel.buffers.size(); ++slot) {
    if (kernel.buffers[slot].kind != Buffer::Kind::input) continue;
    std::vector<Val> loads;
    for (size_t v = 0; v < kernel.insts.size(); ++v)
      if (kernel.insts[v].op == Op::load && kernel.insts[v].slot == static_cast<int32_t>(slot))
        loads.push_back(static_cast<Val>(v));
    if (loads.empty() || bytes_walked(kernel, kernel.insts[loads.back()]) <= cached) continue;
    plan.ahead[loads.back()] =
        bytes_ahead(kernel, plan, kernel.insts[loads.back()], loads.size() > 1);
  }
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
