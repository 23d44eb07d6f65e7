// The vector dimension is the one with the lowest estimated cost per outer point; the estimates
// count vector instructions and know what memory accesses cost by their stride.
#include "codegen/cpu/plan.h"

#include <algorithm>
#include <cmath>

#include "codegen/cpu/likely_kernel.h"
#include "codegen/cpu/plan_large.h"
#include "codegen/cpu/short_rows.h"
#include "loops/may_fail.h"

namespace smelt::cpu {

using loops::Buffer;
using loops::Inst;
using loops::Kernel;
using loops::Op;
using loops::Val;

namespace {

constexpr int64_t kUnknownExtent = 256;  // what an extent is taken for of which nothing is known
constexpr int64_t kUnitPoints = 4096;
constexpr int64_t kTileBlock = 256;  // of the vector dimension in a tile

double extent_of(const Kernel& kernel, int dim) {
  return static_cast<double>(kernel.extent(dim).as_known().value_or(kUnknownExtent));
}

// Roughly, of one vector, in cycles.
double arithmetic_cost(const Inst& inst) {
  if (loops::facts_of(inst.op).typing != loops::Typing::floating) {
    if (inst.op == Op::div) return is_floating(inst.dtype) ? 8 : 40;
    if (inst.op == Op::mod) return 40;
    return inst.op == Op::constant || inst.op == Op::param || inst.op == Op::reduce ? 0.5 : 1;
  }
  switch (inst.op) {
    case Op::floor:
    case Op::ceil:
    case Op::round:
    case Op::trunc:
    case Op::copysign: return 1;
    case Op::sqrt: return 10;
    case Op::rsqrt: return 18;
    case Op::exp:
    case Op::exp2:
    case Op::sigmoid:
    case Op::log:
    case Op::log2: return 12;
    case Op::pow:
    case Op::atan2: return 60;
    default: return 25;
  }
}

bool is_memory(const Inst& inst) {
  return inst.op == Op::load || inst.op == Op::store || inst.op == Op::accumulate;
}

// What Plan::depends says.
std::vector<uint64_t> dependences(const Kernel& kernel, int vector_dim) {
  std::vector<uint64_t> depends(kernel.insts.size(), 0);
  const int outer = static_cast<int>(kernel.outer.size());
  const bool outer_vector = vector_dim >= 0 && vector_dim < outer;
  const bool guard = needs_guard(kernel);
  for (const loops::Stage& stage : kernel.stages) {
    for (Val v = stage.begin; v < stage.end; ++v) {
      const Inst& inst = kernel.insts[v];
      uint64_t& bits = depends[v];
      bits = depends_of(inst.index, depends);
      for (int i = 0; i < loops::facts_of(inst.op).arguments; ++i) bits |= depends[inst.args[i]];
      if (inst.op == Op::reduce) {
        bits = bit_of(kPoint) | (bit_of(outer) - 1);
        continue;
      }
      if (inst.op == Op::scan) bits = bit_of(kPoint) | bit_of(kBody) | (bit_of(kernel.dims()) - 1);
      const bool may_not_run_early = inst.op == Op::load || loops::may_fail(inst.op, inst.dtype);
      if (stage.inner && guard && may_not_run_early) bits |= bit_of(kGuard);
      if (inst.op == Op::load && kernel.buffers[inst.slot].kind != Buffer::Kind::input) {
        bits |= bit_of(kPoint) | (stage.inner ? bit_of(kBody) : 0);
        if (outer_vector && kernel.buffers[inst.slot].kind == Buffer::Kind::scratch)
          bits |= bit_of(vector_dim);
      }
    }
  }
  return depends;
}

// Of one access for a vector of lanes, if `dim` is walked by vectors.
double access_cost(const Inst& inst, const std::vector<uint64_t>& depends, int dim, int lanes) {
  const uint64_t bits = depends_of(inst.index, depends);
  if (!(bits & bit_of(dim))) return 0.5;
  if (const auto walk = row_walk(inst.index, dim, lanes))
    return static_cast<double>(lanes) / static_cast<double>(walk->row);
  for (const loops::Term& term : inst.index.terms()) {
    if (term.atom.kind == loops::Atom::Kind::dim) {
      if (term.atom.id == dim && !term.stride.is(1))
        return (inst.op == Op::store ? 1.5 : 1) * lanes;
    } else if (term.atom.kind == loops::Atom::Kind::value) {
      // Lanes that may meet take turns: a loop of their own.
      if (depends[term.atom.id] & bit_of(dim)) return (inst.op == Op::accumulate ? 6 : 1) * lanes;
    } else if (depends_of(*term.atom.inner, depends) & bit_of(dim)) {
      return 4 * lanes;
    }
  }
  return 1;
}

struct Weights {
  double inner = 0, outer = 0;  // of the instructions of inner stages, and of the others
  double serial = 0;            // of stages that scan along the vector dimension
  int reduces = 0;
};

Weights weigh(const Kernel& kernel, const std::vector<uint64_t>& depends, int dim, int lanes) {
  Weights weights;
  const bool across = dim >= static_cast<int>(kernel.outer.size());
  for (const loops::Stage& stage : kernel.stages) {
    const bool serial = across && has_scan(kernel, stage);
    for (Val v = stage.begin; v < stage.end; ++v) {
      const Inst& inst = kernel.insts[v];
      const bool varies = dim >= 0 && (depends[v] & bit_of(dim));
      const double cost = is_memory(inst)
                              ? (dim < 0 || serial ? 1 : access_cost(inst, depends, dim, lanes))
                              : arithmetic_cost(inst) * (varies || dim < 0 ? 1 : 0.25);
      (serial ? weights.serial : stage.inner ? weights.inner : weights.outer) += cost;
      weights.reduces += inst.op == Op::reduce;
    }
  }
  return weights;
}

// Cycles per outer point, roughly.
double point_cost(const Kernel& kernel, int dim, int lanes) {
  const std::vector<uint64_t> depends = dependences(kernel, dim);
  const Weights weights = weigh(kernel, depends, dim, lanes);
  const int outer = static_cast<int>(kernel.outer.size());
  double inner_points = 1;
  for (int d = outer; d < kernel.dims(); ++d) inner_points *= extent_of(kernel, d);
  if (dim < 0) return weights.outer + weights.inner * inner_points;
  const double extent = extent_of(kernel, dim);
  const double steps = std::ceil(extent / lanes);
  if (dim >= outer)
    return weights.outer + 12 * weights.reduces + weights.serial * inner_points +
           weights.inner * inner_points * steps / std::max(extent, 1.0);
  return (weights.outer + weights.inner * inner_points) * steps / std::max(extent, 1.0);
}

// As many as fill a register with the dtype that most of the work is done in. Positions, though
// i64, are mostly narrow.
int choose_lanes(const Kernel& kernel, int bits) {
  auto width = [&](const Inst& inst) { return inst.op == Op::index ? 4 : bytes_of(inst.dtype); };
  int count[9] = {};
  for (const Inst& inst : kernel.insts) {
    if (inst.op == Op::constant || inst.op == Op::param || inst.op == Op::index) continue;
    int bytes = width(inst);
    for (int i = 0; i < loops::facts_of(inst.op).arguments; ++i)
      if (kernel.insts[inst.args[i]].op != Op::constant)
        bytes = std::max(bytes, width(kernel.insts[inst.args[i]]));
    ++count[bytes];
  }
  int bytes = 8;
  if (count[8] <= count[4]) bytes = 4;
  if (count[8] + count[4] == 0) bytes = count[2] ? 2 : 1;
  return bits / 8 / bytes;
}

int vector_bits(const CpuOptions& options, const HostTarget& host) {
  return options.vector_bits > 0 ? std::min(options.vector_bits, host.vector_bits)
                                 : host.vector_bits;
}

// Does it write where other points may write, too?
bool is_update(const Inst& inst) {
  return inst.op == Op::accumulate || (inst.op == Op::store && inst.index.uses_values());
}

// With scans, and updates of memory, vectors may not change the order of what may meet at one
// place.
bool order_allows(const Kernel& kernel, int dim) {
  const int outer = static_cast<int>(kernel.outer.size());
  std::vector<int> updates(kernel.buffers.size(), 0);
  bool some = false;
  for (const Inst& inst : kernel.insts)
    if (is_update(inst)) ++updates[inst.slot], some = true;
  const bool scans =
      std::ranges::any_of(kernel.insts, [](const Inst& inst) { return inst.op == Op::scan; });
  if (scans && dim >= outer && dim != kernel.dims() - 1) return false;
  if (!some && !kernel.ordered) return true;
  if (kernel.ordered && dim < outer && (!kernel.inner.empty() || dim != outer - 1)) return false;
  if (dim >= outer && dim != kernel.dims() - 1) return false;
  if (dim < outer && !kernel.inner.empty()) return false;
  for (const Inst& inst : kernel.insts)
    if (is_memory(inst) && updates[inst.slot] && (!is_update(inst) || updates[inst.slot] > 1))
      return false;
  return true;
}

// Rows that are scanned side by side, by the lanes of a vector, are read and written by strides.
// That costs less than waiting for the sum before only where elements have 4 bytes (measured).
bool strides_pay(const Kernel& kernel, int dim) {
  if (dim >= static_cast<int>(kernel.outer.size())) return true;
  for (const loops::Stage& stage : kernel.stages) {
    if (!has_scan(kernel, stage)) continue;
    for (Val v = stage.begin; v < stage.end; ++v) {
      const Inst& inst = kernel.insts[v];
      if (!is_memory(inst) || bytes_of(inst.dtype) == 4) continue;
      const auto stride = inst.index.stride_of(dim);
      if (!stride || !(stride->is(0) || stride->is(1))) return false;
    }
  }
  return true;
}

// Returns the cost of an outer point.
double choose_vector_dim(const Kernel& kernel, int lanes, Plan& plan) {
  double best = point_cost(kernel, -1, 1);
  if (lanes <= 1) return best;
  for (int dim = kernel.dims(); dim-- > 0;) {
    if (kernel.extent(dim).is(0) || kernel.extent(dim).is(1) || !order_allows(kernel, dim) ||
        !strides_pay(kernel, dim))
      continue;
    const double cost = point_cost(kernel, dim, lanes);
    if (cost >= best) continue;
    best = cost;
    plan.vector_dim = dim;
  }
  if (plan.vector_dim < 0) return best;
  plan.lanes = lanes;
  plan.outer_vector = plan.vector_dim < static_cast<int>(kernel.outer.size());
  plan.by_rows = goes_by_rows(kernel, plan.vector_dim, lanes);
  return best;
}

// More vectors per step hide the latency of sums and of chains of arithmetic, and read longer
// stretches of memory at a time; long bodies hide it themselves, and take long to compile. The
// limits are measured (bench/cpu_kernels.cpp).
int choose_packs(const Kernel& kernel, const Plan& plan) {
  if (plan.vector_dim < 0 || kernel.ordered) return 1;
  double cost = 0;
  bool reduces = false;
  for (size_t v = 0; v < kernel.insts.size(); ++v) {
    const Inst& inst = kernel.insts[v];
    reduces |= inst.op == Op::reduce;
    if (plan.depends[v] & bit_of(plan.vector_dim))
      cost += is_memory(inst) ? 1 : arithmetic_cost(inst);
  }
  if (!reduces) return cost > 8 && cost <= 40 ? 2 : 1;
  if (plan.outer_vector && cost <= 4) {
    const double extent = extent_of(kernel, plan.vector_dim);
    if (extent >= 1024) return extent >= 4096 ? 16 : 8;
  }
  return cost <= 16 ? 4 : cost <= 40 ? 2 : 1;
}

// The dimension along which transposed loads are contiguous.
int choose_tile_dim(const Kernel& kernel, const Plan& plan) {
  if (!plan.outer_vector || !kernel.inner.empty() || kernel.ordered) return -1;
  std::vector<int> votes(kernel.outer.size(), 0);
  for (const Inst& inst : kernel.insts) {
    if (!is_memory(inst) || inst.index.uses_values()) continue;
    const auto along = inst.index.stride_of(plan.vector_dim);
    if (!along || along->is(0) || along->is(1)) continue;
    for (int dim = 0; dim < static_cast<int>(kernel.outer.size()); ++dim) {
      const auto stride = dim == plan.vector_dim ? std::nullopt : inst.index.stride_of(dim);
      if (stride && stride->is(1) && kernel.extent(dim).as_known().value_or(kUnknownExtent) >= 4)
        ++votes[dim];
    }
  }
  const auto most = std::max_element(votes.begin(), votes.end());
  return most == votes.end() || *most == 0 ? -1 : static_cast<int>(most - votes.begin());
}

void choose_scratch(const Kernel& kernel, Plan& plan) {
  plan.scratch_offset.assign(kernel.buffers.size(), 0);
  size_t bytes = 0;
  for (size_t i = 0; i < kernel.buffers.size(); ++i) {
    const Buffer& buffer = kernel.buffers[i];
    if (buffer.kind != Buffer::Kind::scratch || !buffer.elements.is_known()) continue;
    plan.scratch_offset[i] = static_cast<int64_t>(bytes);
    const int64_t copies = plan.outer_vector ? static_cast<int64_t>(plan.lanes) * plan.packs : 1;
    const auto size =
        static_cast<size_t>(buffer.elements.known() * copies * bytes_of(buffer.dtype));
    bytes += (size + 63) / 64 * 64;
  }
  plan.scratch_bytes = bytes;
}

Size ceil_div(const Size& a, const Size& b) { return floor_div(a + b - 1, b); }

// `likely`: the same kernel, for estimates.
void choose_units(const Kernel& kernel, const Kernel& likely, Plan& plan) {
  const int outer = static_cast<int>(kernel.outer.size());
  Size points = 1;
  plan.items = 1;
  plan.unit_points = kUnitPoints;
  for (int dim = 0; dim < kernel.dims(); ++dim) {
    if (dim < outer && dim != plan.vector_dim && dim != plan.tile_dim) {
      plan.digits.push_back(dim);
      plan.items = plan.items * kernel.extent(dim);
    } else {
      points = points * kernel.extent(dim);
    }
  }
  Size item_points = points;
  if (plan.outer_vector) {
    const Size& extent = kernel.extent(plan.vector_dim);
    const Size inner = product(kernel.inner);
    const int64_t step = static_cast<int64_t>(plan.lanes) * plan.packs;
    const int64_t wanted =
        kUnitPoints /
        std::max<int64_t>(1, product(likely.inner).as_known().value_or(kUnknownExtent));
    plan.block = std::max(step, wanted / step * step);
    if (plan.tile_dim >= 0) plan.block = std::max(step, kTileBlock / step * step);
    plan.items = plan.items * ceil_div(extent, plan.block);
    item_points = min(extent, Size(plan.block)) * inner;
    if (plan.tile_dim >= 0) {
      plan.tile = plan.lanes;
      const Size& other = kernel.extent(plan.tile_dim);
      plan.items = plan.items * ceil_div(other, plan.tile);
      item_points = item_points * min(other, Size(plan.tile));
    }
  }
  // The 1 added keeps the division defined where a size is 0.
  const Size per_unit = max(Size(1), floor_div(Size(kUnitPoints), points + 1));
  plan.units = ceil_div(plan.items, per_unit);

  const double cost = point_cost(likely, plan.vector_dim, plan.lanes);
  double inner_points = 1;
  for (int d = outer; d < kernel.dims(); ++d) inner_points *= extent_of(likely, d);
  // In 1/16 cycles, to stay in integers.
  const auto sixteenths = static_cast<int64_t>(std::ceil(16 * cost / std::max(inner_points, 1.0)));
  plan.unit_cost =
      max(Size(1), floor_div(per_unit * item_points * std::max<int64_t>(1, sixteenths), Size(16)));
}

}  // namespace

bool has_scan(const Kernel& kernel, const loops::Stage& stage) {
  return std::any_of(kernel.insts.begin() + stage.begin, kernel.insts.begin() + stage.end,
                     [](const Inst& inst) { return inst.op == Op::scan; });
}

bool needs_guard(const Kernel& kernel) {
  return std::any_of(kernel.inner.begin(), kernel.inner.end(),
                     [](const Size& s) { return !s.is_known(); });
}

Kernel kernel_to_plan(const Kernel& kernel, const CpuOptions& options, const HostTarget& host) {
  const int lanes = choose_lanes(kernel, vector_bits(options, host));
  std::optional<Kernel> joined = join_short_rows(kernel, lanes);
  if (!joined) return kernel;
  Plan as_it_is, by_rows;
  const Kernel likely = likely_kernel(kernel, options.likely_symbols);
  const Kernel likely_joined = likely_kernel(*joined, options.likely_symbols);
  if (choose_vector_dim(likely_joined, lanes, by_rows) >=
      choose_vector_dim(likely, lanes, as_it_is))
    return kernel;
  return std::move(*joined);
}

Plan make_plan(const Kernel& kernel, const CpuOptions& options, const HostTarget& host) {
  Plan plan;
  const int bits = vector_bits(options, host);
  // Of short vectors little is left: scalars do as well.
  plan.masked_tail = host.masked_tails && bits > 128;
  const Kernel likely = likely_kernel(kernel, options.likely_symbols);
  for (int dim = 0; dim < kernel.dims(); ++dim)
    plan.likely.push_back(likely.extent(dim).as_known().value_or(-1));
  choose_vector_dim(likely, choose_lanes(kernel, bits), plan);
  plan.by_rows = plan.vector_dim >= 0 && goes_by_rows(kernel, plan.vector_dim, plan.lanes);
  plan.depends = dependences(kernel, plan.vector_dim);
  plan.tile_dim = choose_tile_dim(likely, plan);
  plan.packs = plan.tile_dim >= 0 ? 1 : choose_packs(likely, plan);
  choose_scratch(kernel, plan);
  choose_units(kernel, likely, plan);
  choose_streams(kernel, likely, options, host, plan);
  choose_prefetches(likely, options, host, plan);
  choose_slices(kernel, options, plan);
  return plan;
}

}  // namespace smelt::cpu
