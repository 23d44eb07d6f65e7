#include "codegen/cuda/plan.h"

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "base/bounds.h"
#include "codegen/cuda/plan_parts.h"

namespace smelt::cuda {

using loops::Buffer;
using loops::Index;
using loops::Inst;
using loops::Kernel;
using loops::Op;
using loops::Stage;
using loops::Val;

namespace {

bool is_access(const Inst& inst) {
  return inst.op == Op::load || inst.op == Op::store || inst.op == Op::accumulate;
}
bool writes(const Inst& inst) { return inst.op == Op::store || inst.op == Op::accumulate; }

// A buffer that is written twice, or read behind a write of the same stage, or in another place:
// instructions must stay in their order.
bool reads_its_writes(const Kernel& kernel) {
  std::vector<int> writers(kernel.buffers.size(), 0);
  for (const Stage& stage : kernel.stages) {
    std::vector<bool> written(kernel.buffers.size(), false);
    std::vector<const Index*> read(kernel.buffers.size(), nullptr);
    for (Val v = stage.begin; v < stage.end; ++v) {
      const Inst& inst = kernel.insts[v];
      if (inst.op == Op::load && written[inst.slot]) return true;
      if (inst.op == Op::load) read[inst.slot] = &inst.index;
      if (!writes(inst)) continue;
      if (++writers[inst.slot] > 1) return true;
      if (read[inst.slot] && !(*read[inst.slot] == inst.index)) return true;
      written[inst.slot] = true;
    }
  }
  return false;
}

// What an instruction of an inner stage must stay inside of the loop for.
void pin_to_points(const Kernel& kernel, std::vector<bool>& inner) {
  for (const Stage& stage : kernel.stages) {
    for (Val v = stage.begin; stage.inner && v < stage.end; ++v) {
      const Inst& inst = kernel.insts[v];
      bool some = inner[v] || inst.op == Op::scan || writes(inst) ||
                  (inst.op == Op::load && kernel.buffers[inst.slot].kind != Buffer::Kind::input);
      if (inst.op != Op::reduce)
        for (int i = 0; i < loops::facts_of(inst.op).arguments; ++i)
          some = some || inner[inst.args[i]];
      inner[v] = some && inst.op != Op::reduce;
    }
  }
}

int64_t known_or(const Size& size, int64_t otherwise) {
  return size.as_known().value_or(otherwise);
}

// Is it another element for other inner points?
bool moves_inside(const Kernel& kernel, const Index& index) {
  for (int dim = static_cast<int>(kernel.outer.size()); dim < kernel.dims(); ++dim) {
    const auto stride = index.stride_of(dim);
    if (!stride || !stride->is(0)) return true;
  }
  return false;
}

// Do the elements of accesses lie along the last outer dimension rather than the last inner one?
// What is the same for all inner points is read once, and does not count.
bool prefers_columns(const Kernel& kernel) {
  if (kernel.outer.empty()) return false;
  const int outer = static_cast<int>(kernel.outer.size()) - 1, inner = kernel.dims() - 1;
  int64_t rows = 0, columns = 0;
  for (const Stage& stage : kernel.stages) {
    for (Val v = stage.begin; stage.inner && v < stage.end; ++v) {
      const Inst& inst = kernel.insts[v];
      if (!is_access(inst) || kernel.buffers[inst.slot].kind == Buffer::Kind::scratch ||
          !moves_inside(kernel, inst.index))
        continue;
      const auto along_inner = inst.index.stride_of(inner),
                 along_outer = inst.index.stride_of(outer);
      if (along_inner && along_inner->is(1)) rows += bytes_of(inst.dtype);
      if (along_outer && along_outer->is(1)) columns += bytes_of(inst.dtype);
    }
  }
  return columns > rows;
}

// Of a large GPU at a time.
constexpr int64_t kThreads = 132 * 2048;

int power_of_two_at_least(int64_t n) {
  return static_cast<int>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(n, 1))));
}

void choose_row_team(const Kernel& kernel, Plan& plan) {
  const Size points = product(kernel.inner);
  if (!points.is_known()) {
    plan.team = plan.threads = 256;
    return;
  }
  const int64_t vectors = std::max<int64_t>(1, (points.known() + plan.vector - 1) / plan.vector);
  const int64_t rows = known_or(product(kernel.outer), 1 << 20);
  if (vectors <= 128 || (vectors <= 256 && rows >= 4096)) {
    plan.team = std::min(32, power_of_two_at_least(vectors));
    plan.threads = 128;
    return;
  }
  // About four vectors for each thread; without a rest, if that can be.
  int64_t wanted = std::min<int64_t>(1024, (vectors + 127) / 128 * 32);
  // Rows that are read once, a few more than the device has threads for at a time: with more vectors
  // for each thread all of them are read at once, and no second round is half empty.
  const auto passes = std::ranges::count(kernel.stages, true, &Stage::inner);
  if (!plan.scans && passes == 1 && rows * wanted > kThreads && rows * wanted < 4 * kThreads)
    for (int64_t team = wanted - 32; team >= 64 && team * 16 >= vectors; team -= 32)
      if (vectors % team == 0 && rows * team <= kThreads) {
        plan.team = plan.threads = static_cast<int>(team);
        return;
      }
  plan.team = static_cast<int>(wanted);
  for (int64_t team = wanted; team >= 64 && team * 8 >= vectors; team -= 32) {
    if (vectors % team != 0) continue;
    plan.team = static_cast<int>(team);
    break;
  }
  plan.threads = plan.team;
}

void choose_column_team(const Kernel& kernel, Plan& plan) {
  const int64_t across = known_or(plan.items, 1 << 20);
  plan.width = static_cast<int>(std::min<int64_t>(32, power_of_two_at_least(across)));
  const int64_t points = known_or(product(kernel.inner), 1 << 16);
  // With several passes, what a thread has loaded should fit into its registers.
  const auto passes = std::ranges::count(kernel.stages, true, &Stage::inner);
  const int most = (passes > 1 && points > 256 ? 1024 : 256) / plan.width;
  plan.team = std::min(most, power_of_two_at_least((points + 3) / 4));
  // Enough columns need no teams.
  if ((across >= 1 << 20 && (passes == 1 || points <= 32)) || points < 8) plan.team = 1;
  if (plan.team == 1) plan.width = plan.threads = 128;
  plan.threads = plan.team * plan.width;
}

}  // namespace

bool is_distinct(const Kernel& kernel, const Index& index) {
  if (!index.is_affine() || index.uses_values()) return false;
  struct Step {
    Size stride, extent;
  };
  std::vector<Step> steps;
  for (int dim = static_cast<int>(kernel.outer.size()); dim < kernel.dims(); ++dim) {
    if (kernel.extent(dim).is(1)) continue;
    Size stride = *index.stride_of(dim);
    if (stride.is_known()) stride = std::abs(stride.known());
    steps.push_back({stride, kernel.extent(dim)});
  }
  if (std::ranges::all_of(steps, [](const Step& step) { return step.stride.is_known(); }))
    std::ranges::sort(steps, {}, [](const Step& step) { return step.stride.known(); });
  else
    std::ranges::reverse(steps);
  // Each stride steps over all that the smaller ones reach.
  Size reach = 0;
  for (const Step& step : steps) {
    if (difference_bounds(step.stride, reach).low < 1) return false;
    reach = reach + step.stride * (step.extent - 1);
  }
  return true;
}

bool adds_only(const Kernel& kernel) {
  if (kernel.stages.size() != 1 || !kernel.inner.empty()) return false;
  std::vector<int> loads(kernel.buffers.size()), sums(kernel.buffers.size());
  for (const Inst& inst : kernel.insts) {
    if (inst.op == Op::store) return false;
    if (inst.op == Op::load) ++loads[inst.slot];
    if (inst.op != Op::accumulate) continue;
    const bool is_added = inst.dtype == DType::f32 || inst.dtype == DType::f64 ||
                          inst.dtype == DType::i32 || inst.dtype == DType::i64;
    if (inst.reduction != loops::Reduction::sum || !is_added) return false;
    ++sums[inst.slot];
  }
  for (size_t slot = 0; slot < sums.size(); ++slot)
    if (sums[slot] > 0 && loads[slot] > 0) return false;
  return true;
}

bool needs_order(const Kernel& kernel) {
  for (const Stage& stage : kernel.stages) {
    for (Val v = stage.begin; stage.inner && v < stage.end; ++v) {
      const Inst& inst = kernel.insts[v];
      if (inst.op == Op::scan && prefers_columns(kernel)) return true;
      if (writes(inst) && !is_distinct(kernel, inst.index)) return true;
    }
  }
  return false;
}

Plan make_plan(const Kernel& kernel, const PlanOptions& options) {
  Plan plan;
  plan.points = plan.items = product(kernel.outer);
  plan.serial = needs_order(kernel) || reads_its_writes(kernel);
  const bool has_inner = !kernel.inner.empty();
  plan.scans =
      !plan.serial && std::ranges::find(kernel.insts, Op::scan, &Inst::op) != kernel.insts.end();
  plan.wide = plan.varies = std::vector<bool>(kernel.insts.size(), false);
  if (plan.serial)
    plan.threads = 64;
  else if (plan.scans)
    plan.threads = 128;
  else if (!has_inner || prefers_columns(kernel))
    choose_vector(kernel, static_cast<int>(kernel.outer.size()) - 1, options, plan);
  else
    choose_vector(kernel, kernel.dims() - 1, options, plan);
  plan.columns = !plan.serial && !plan.scans && has_inner && prefers_columns(kernel);
  if (plan.columns)
    choose_column_team(kernel, plan);
  else if (has_inner && !plan.serial)
    choose_row_team(kernel, plan);
  choose_tiles(kernel, options, plan);
  choose_apart(kernel, options, plan);
  plan.inner = dependents(kernel, static_cast<int>(kernel.outer.size()), kernel.dims(), false);
  pin_to_points(kernel, plan.inner);
  choose_slices(kernel, options, plan);
  choose_registers(kernel, plan);
  choose_streams(kernel, plan);
  choose_homes(kernel, plan);
  return plan;
}

Plan finish_plan(const Kernel& kernel, const Plan& plan) {
  Plan finish = plan;
  finish.columns = finish.outer_vector = finish.tail = false;
  finish.vector = 1;
  finish.vector_dim = -1;
  finish.varies = finish.wide = std::vector<bool>(kernel.insts.size(), false);
  finish.team = plan.finish_team;
  finish.threads = 128;
  finish.items = plan.points;
  return finish;
}

}  // namespace smelt::cuda
