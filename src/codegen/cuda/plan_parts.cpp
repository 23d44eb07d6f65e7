#include "codegen/cuda/plan_parts.h"

#include <algorithm>

namespace smelt::cuda {

using loops::Buffer;
using loops::even_quotient;
using loops::Index;
using loops::Inst;
using loops::Kernel;
using loops::Op;
using loops::Stage;
using loops::Val;

namespace {

constexpr int64_t kBlocks = 1056;             // that keep a large GPU busy
constexpr int64_t kFewBlocks = 264;           // too few for it
constexpr int64_t kSlicePoints = 16;          // of a thread, at least
constexpr int64_t kManyPoints = 1 << 20;      // more than threads at a time
constexpr int64_t kStreamedBytes = 48 << 20;  // more than caches hold
constexpr int64_t kSharedBytes = 40 << 10;
constexpr size_t kFewInsts = 24;  // a product and what is made of it

bool is_access(const Inst& inst) {
  return inst.op == Op::load || inst.op == Op::store || inst.op == Op::accumulate;
}

// Is it made of a dimension of [first, last), or of such a value?
bool depends(const Index& index, const std::vector<bool>& values, int first, int last) {
  for (const loops::Term& term : index.terms()) {
    const loops::Atom& atom = term.atom;
    if (atom.inner) {
      if (depends(*atom.inner, values, first, last)) return true;
    } else if (atom.kind == loops::Atom::Kind::dim) {
      if (atom.id >= first && atom.id < last) return true;
    } else if (values[atom.id]) {
      return true;
    }
  }
  return false;
}

// Elements of `count` points along the dimension lie next to each other, at a multiple of `count`.
bool is_wide(const Inst& inst, int dim, int count, const std::vector<bool>& varies) {
  if (inst.op == Op::accumulate) return false;
  const auto along = inst.index.stride_of(dim);
  if (!along || !along->is(1) || !even_quotient(inst.index.constant(), count)) return false;
  return std::ranges::all_of(inst.index.terms(), [&](const loops::Term& term) {
    if (term.atom.kind == loops::Atom::Kind::dim && term.atom.id == dim) return true;
    if (term.atom.kind == loops::Atom::Kind::value && varies[term.atom.id]) return false;
    if (term.atom.inner && depends(*term.atom.inner, varies, dim, dim + 1)) return false;
    return even_quotient(term.stride, count).has_value();
  });
}

struct Votes {
  int64_t wide = 0, other = 0;  // bytes
  int least = 16, most = 0;     // bytes of an element
};

Votes votes_for(const Kernel& kernel, int dim, int count, const std::vector<bool>& varies) {
  Votes votes;
  for (const Inst& inst : kernel.insts) {
    if (!is_access(inst) || kernel.buffers[inst.slot].kind == Buffer::Kind::scratch ||
        !depends(inst.index, varies, dim, dim + 1))
      continue;
    const int bytes = bytes_of(inst.dtype);
    if (is_wide(inst, dim, count, varies)) {
      votes.wide += bytes;
      votes.least = std::min(votes.least, bytes);
      votes.most = std::max(votes.most, bytes);
    } else {
      votes.other += bytes;
    }
  }
  return votes;
}

bool has_scratch(const Kernel& kernel) {
  return std::ranges::any_of(
      kernel.buffers, [](const Buffer& buffer) { return buffer.kind == Buffer::Kind::scratch; });
}

// One pass over the inner points, of which none needs what another has found or written.
bool can_slice(const Kernel& kernel, const Plan& plan) {
  if (plan.serial || plan.scans || kernel.inner.empty()) return false;
  for (const Buffer& buffer : kernel.buffers)
    if (buffer.kind == Buffer::Kind::scratch || buffer.kind == Buffer::Kind::updated) return false;
  int inner = 0, reductions = 0;
  for (const Stage& stage : kernel.stages) {
    inner += stage.inner;
    for (Val v = stage.begin; v < stage.end; ++v) {
      const Inst& inst = kernel.insts[v];
      reductions += inst.op == Op::reduce;
      if (inst.op == Op::load && kernel.buffers[inst.slot].kind != Buffer::Kind::input)
        return false;
    }
  }
  return inner == 1 && reductions > 0;
}

// May the last vector of each row have fewer points? Rows are long then, so that it is one of many.
bool may_cut(const Kernel& kernel, int dim, const PlanOptions& options) {
  if (kernel.dims() == 1 && !kernel.outer.empty()) return true;
  const bool outer = dim < static_cast<int>(kernel.outer.size());
  const auto extent = kernel.extent(dim).as_known();
  return (outer ? kernel.inner.empty() : kernel.inner.size() == 1) && extent &&
         *extent >= (options.as_if_large ? 3 : 512);
}

}  // namespace

std::vector<bool> dependents(const Kernel& kernel, int first, int last, bool reduced) {
  std::vector<bool> found(kernel.insts.size(), false);
  for (size_t v = 0; v < kernel.insts.size(); ++v) {
    const Inst& inst = kernel.insts[v];
    if (inst.op == Op::reduce) {
      found[v] = reduced;
      continue;
    }
    bool some = depends(inst.index, found, first, last);
    for (int i = 0; i < loops::facts_of(inst.op).arguments; ++i) some = some || found[inst.args[i]];
    found[v] = some;
  }
  return found;
}

void choose_vector(const Kernel& kernel, int dim, const PlanOptions& options, Plan& plan) {
  if (dim < 0) return;
  const bool outer = dim < static_cast<int>(kernel.outer.size());
  if (outer && has_scratch(kernel)) return;
  const std::vector<bool> varies = dependents(kernel, dim, dim + 1, outer);
  for (const int count : {16, 8, 4, 2}) {
    const bool fits = even_quotient(kernel.extent(dim), count).has_value();
    const bool tail = !fits && may_cut(kernel, dim, options);
    if (!fits && !tail) continue;
    const Votes votes = votes_for(kernel, dim, count, varies);
    if (votes.wide == 0 || votes.wide < votes.other || (tail && votes.wide == votes.other))
      continue;
    if (votes.least * count > 16 || votes.most * count > (votes.most == 1 ? 16 : 64)) continue;
    if (count == 16 && (votes.most > 1 || votes.other > 0)) continue;
    // Too few points to go round are better one by one.
    const auto extent = kernel.extent(dim).as_known();
    if (kernel.dims() == 1 && outer && extent && *extent < 64 * 1024 && !options.as_if_large)
      continue;
    plan.vector = count;
    plan.vector_dim = dim;
    plan.outer_vector = outer;
    plan.tail = tail;
    break;
  }
  if (plan.vector == 1) return;
  plan.varies = varies;
  for (size_t v = 0; v < kernel.insts.size(); ++v)
    plan.wide[v] = is_access(kernel.insts[v]) && is_wide(kernel.insts[v], dim, plan.vector, varies);
  if (!outer) return;
  const Size even = kernel.outer.back();
  plan.items = product(std::span(kernel.outer).first(kernel.outer.size() - 1)) *
               (plan.tail ? floor_div(even + (plan.vector - 1), plan.vector)
                          : *even_quotient(even, plan.vector));
}

void choose_tiles(const Kernel& kernel, const PlanOptions& options, Plan& plan) {
  plan.tiled.assign(kernel.insts.size(), false);
  const int last = static_cast<int>(kernel.outer.size()) - 1;
  if (last < 1 || !kernel.inner.empty() || kernel.stages.size() != 1 || plan.serial ||
      has_scratch(kernel))
    return;
  const int64_t least = options.as_if_large ? 2 : kTile;
  const auto is_long = [&](int dim) {
    return kernel.extent(dim).as_known().value_or(kTile) >= least;
  };
  if (!is_long(last)) return;
  // Along which dimension do loads lie that do not lie along the last one?
  const auto lies_along = [&](const Inst& inst, int dim) {
    if (inst.op != Op::load || inst.index.uses_values()) return false;
    const auto along = inst.index.stride_of(dim), other = inst.index.stride_of(last);
    return along && other && along->is(1) && !other->is(0) && !other->is(1);
  };
  std::vector<int64_t> bytes(kernel.outer.size(), 0);
  for (const Inst& inst : kernel.insts)
    for (int dim = 0; dim < last; ++dim)
      if (is_long(dim) && lies_along(inst, dim)) bytes[dim] += bytes_of(inst.dtype);
  const auto most = std::ranges::max_element(bytes);
  if (*most == 0) return;
  plan.tile_dim = static_cast<int>(most - bytes.begin());
  int64_t shared = 0;
  for (size_t v = 0; v < kernel.insts.size(); ++v) {
    const Inst& inst = kernel.insts[v];
    const int64_t space = kTile * (kTile + 1) * bytes_of(inst.dtype);
    plan.tiled[v] = lies_along(inst, plan.tile_dim) && shared + space <= kSharedBytes;
    if (plan.tiled[v]) shared += space;
  }
  plan.vector = 1;
  plan.vector_dim = -1;
  plan.outer_vector = plan.tail = false;
  plan.wide = plan.varies = std::vector<bool>(kernel.insts.size(), false);
  plan.threads = kTile * kTileThreads;
  const auto tiles = [](const Size& extent) { return floor_div(extent + (kTile - 1), kTile); };
  plan.items = 1;
  for (int dim = 0; dim <= last; ++dim)
    plan.items = plan.items * (dim == last || dim == plan.tile_dim ? tiles(kernel.extent(dim))
                                                                   : kernel.extent(dim));
}

// A thread that loads one small element and stores it waits most of its time, and there are too few
// threads at a time to use the memory meanwhile.
void choose_apart(const Kernel& kernel, const PlanOptions& options, Plan& plan) {
  if (plan.vector > 1 || plan.tile_dim >= 0 || plan.serial || !kernel.inner.empty() ||
      kernel.outer.empty() || kernel.stages.size() != 1 || has_scratch(kernel))
    return;
  const auto points = plan.points.as_known();
  if (!points || *points < (options.as_if_large ? 2 : kManyPoints)) return;
  const auto loads = std::ranges::count(kernel.insts, Op::load, &Inst::op);
  plan.vector = loads <= 2 ? 8 : 4;
  plan.apart = plan.outer_vector = plan.tail = true;
  plan.varies = std::vector<bool>(kernel.insts.size(), true);
}

void choose_slices(const Kernel& kernel, const PlanOptions& options, Plan& plan) {
  if (!can_slice(kernel, plan) || !plan.items.is_known()) return;
  const int64_t each = plan.columns ? plan.width : std::max(1, plan.threads / plan.team);
  const int64_t blocks = (plan.items.known() + each - 1) / each;
  if (blocks == 0 || blocks >= kFewBlocks) return;
  const int64_t points = product(kernel.inner).as_known().value_or(1 << 20);
  // A few blocks that go over many points wait for each of them.
  const int64_t many = plan.columns ? 2 * kSlicePoints * plan.team : 4096;
  if (points < (options.as_if_large ? 2 : many)) return;
  if (!plan.columns) plan.team = plan.threads = 256;
  const int64_t step = int64_t{plan.team} * (plan.outer_vector ? 1 : plan.vector);
  const int64_t wanted =
      std::min((kBlocks + blocks - 1) / blocks,
               points / (step * kSlicePoints / (plan.outer_vector ? 1 : plan.vector)));
  if (wanted < 2 && !options.as_if_large) return;
  plan.slices = static_cast<int>(options.as_if_large ? 2 + points % 3 : wanted);
  plan.finish_team = plan.slices >= (options.as_if_large ? 3 : 64) && plan.points.is_known() &&
                             plan.points.known() < 4096
                         ? 32
                         : 1;
}

void choose_registers(const Kernel& kernel, Plan& plan) {
  plan.kept.assign(kernel.insts.size(), -1);
  const Size points = product(kernel.inner);
  if (kernel.inner.empty() || plan.serial || plan.scans || plan.slices > 1 || !points.is_known() ||
      points.known() == 0)
    return;
  const int64_t step = int64_t{plan.team} * (plan.outer_vector ? 1 : plan.vector);
  const int64_t steps = (points.known() + step - 1) / step;
  const auto passes = std::ranges::count(kernel.stages, true, &Stage::inner);
  const bool is_short = passes == 1 && kernel.insts.size() <= kFewInsts;
  if (steps * plan.vector > (is_short ? 128 : 64) || (plan.columns && passes == 1)) return;

  // Loads of several stages, of one place.
  std::vector<Val> keeps;
  std::vector<int32_t> kept(kernel.insts.size(), -1);
  std::vector<int> stages;
  for (size_t s = 0; s < kernel.stages.size(); ++s) {
    const Stage& stage = kernel.stages[s];
    for (Val v = stage.begin; stage.inner && v < stage.end; ++v) {
      const Inst& inst = kernel.insts[v];
      if (inst.op != Op::load || !plan.inner[v] || inst.index.uses_values() ||
          kernel.buffers[inst.slot].kind != Buffer::Kind::input)
        continue;
      size_t found = 0;
      while (found < keeps.size() && (kernel.insts[keeps[found]].slot != inst.slot ||
                                      !(kernel.insts[keeps[found]].index == inst.index)))
        ++found;
      if (found == keeps.size()) {
        keeps.push_back(v);
        stages.push_back(static_cast<int>(s));
      }
      kept[v] = static_cast<int32_t>(found);
    }
  }
  // Those of one stage only are not kept.
  std::vector<bool> again(keeps.size(), false);
  for (size_t s = 0; s < kernel.stages.size(); ++s)
    for (Val v = kernel.stages[s].begin; v < kernel.stages[s].end; ++v)
      if (kept[v] >= 0 && stages[kept[v]] != static_cast<int>(s)) again[kept[v]] = true;
  const int64_t elements = steps * plan.vector;
  int64_t registers = 0;
  for (size_t i = 0; i < keeps.size(); ++i)
    if (again[i]) registers += elements * std::max(1, bytes_of(kernel.insts[keeps[i]].dtype) / 4);
  for (const Buffer& buffer : kernel.buffers)
    if (buffer.kind == Buffer::Kind::scratch)
      registers += elements * std::max(1, bytes_of(buffer.dtype) / 4);
  const int64_t most = std::min<int64_t>(128, 65536 / std::max(plan.threads, 256) * 5 / 8);
  if (registers > most) return;
  plan.steps = steps;
  plan.partial_step = points.known() % step != 0;
  for (size_t v = 0; v < kernel.insts.size(); ++v) {
    if (kept[v] < 0 || !again[kept[v]]) continue;
    const Val keep = keeps[kept[v]];
    const auto place = std::ranges::find(plan.keeps, keep);
    plan.kept[v] = static_cast<int32_t>(place - plan.keeps.begin());
    if (place == plan.keeps.end()) plan.keeps.push_back(keep);
  }
}

void choose_streams(const Kernel& kernel, Plan& plan) {
  plan.streamed.assign(kernel.buffers.size(), false);
  for (size_t slot = 0; slot < kernel.buffers.size(); ++slot) {
    const Buffer& buffer = kernel.buffers[slot];
    const auto elements = buffer.elements.as_known();
    if (buffer.kind == Buffer::Kind::scratch || !elements) continue;
    if (*elements * bytes_of(buffer.dtype) < kStreamedBytes) continue;
    // What is loaded in several places is kept in registers, or wanted again.
    std::vector<Val> loads;
    for (size_t v = 0; v < kernel.insts.size(); ++v)
      if (kernel.insts[v].op == Op::load && kernel.insts[v].slot == static_cast<int32_t>(slot))
        loads.push_back(static_cast<Val>(v));
    plan.streamed[slot] = loads.size() <= 1 || std::ranges::all_of(loads, [&](Val v) {
                            return plan.kept[v] >= 0 && plan.kept[v] == plan.kept[loads[0]];
                          });
  }
}

void choose_homes(const Kernel& kernel, Plan& plan) {
  plan.homes.assign(kernel.buffers.size(), Home::none);
  int64_t shared = 0;
  for (size_t slot = 0; slot < kernel.buffers.size(); ++slot) {
    const Buffer& buffer = kernel.buffers[slot];
    if (buffer.kind != Buffer::Kind::scratch) continue;
    // In registers where all stages access it alike, each point its own place.
    const Index* place = nullptr;
    bool alike = plan.steps > 0;
    for (const Stage& stage : kernel.stages) {
      for (Val v = stage.begin; v < stage.end; ++v) {
        const Inst& inst = kernel.insts[v];
        if (!is_access(inst) || inst.slot != static_cast<int32_t>(slot)) continue;
        if (!place) place = &inst.index;
        alike = alike && stage.inner && inst.op != Op::accumulate && *place == inst.index;
      }
    }
    if (alike) {
      plan.homes[slot] = Home::registers;
      continue;
    }
    const auto elements = buffer.elements.as_known();
    const int64_t bytes =
        elements ? (*elements * bytes_of(buffer.dtype) + 15) / 16 * 16 * plan.items_per_block() : 0;
    const bool fits = elements && !plan.columns && !plan.serial && shared + bytes <= kSharedBytes;
    plan.homes[slot] = fits ? Home::shared : Home::global;
    if (fits) shared += bytes;
  }
}

}  // namespace smelt::cuda
