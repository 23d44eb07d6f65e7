// How a kernel becomes loops over vectors, decided before any instruction is written.
//
// One dimension is walked by vectors. If it is an inner one, an outer point is computed by scalars
// and each inner stage by vectors that are combined at its end (a softmax over rows). If it is an
// outer one, a vector holds that many outer points, and inner dimensions are plain loops inside (a
// sum over columns); kernels without inner dimensions are of that kind too.
//
// The outer dimensions other than the vector one, and the blocks that an outer vector dimension is
// cut into, are counted through as `items`; a unit is a number of consecutive items.
//
// Where a load has its neighbours along another outer dimension than the vector one (a transposed
// matrix), the two are walked in tiles, so that the cache lines it touches are used up before they
// are gone: the other dimension is cut into blocks too, and is the innermost loop of an item.
#pragma once

#include <cstdint>
#include <vector>

#include "codegen/cpu/cpu_module.h"
#include "codegen/cpu/machine/host_target.h"
#include "loops/kernel.h"

namespace smelt::cpu {

struct Plan {
  int vector_dim = -1;        // -1: scalars only
  bool outer_vector = false;  // vector_dim is an outer dimension
  int lanes = 1;              // of a vector
  int packs = 1;              // vectors per step of the main loop
  bool masked_tail =
      false;                // what is left after whole vectors is done under a mask, not by scalars
  bool by_rows = false;     // vectors begin where short rows do (short_rows.h)
  int64_t block = 0;        // of an outer vector dimension: points per item
  int tile_dim = -1;        // the other dimension of tiles; -1: none
  int64_t tile = 0;         // points of it per item
  int64_t unit_points = 1;  // points (of the item's loops) that a unit should have at least
  std::vector<int> digits;  // the outer dimensions that items count through
  std::vector<int64_t> scratch_offset;  // per buffer, in bytes; scratch of known size only

  // What only large kernels have (plan_large.h).
  std::vector<bool> streamed;           // per buffer: written past the caches
  int64_t streamed_points = 0;          // where sizes are not known: if there are more points
  std::vector<int64_t> ahead;           // per load: fetch what lies that many bytes on; 0: nothing
  int slice_dim = -1;                   // the inner dimension that is cut into slices; -1: none
  int64_t slice = 0, slices = 1;        // points of it per slice; slices
  std::vector<int64_t> partial_offset;  // per reduction, in bytes: its results per slice and point
  size_t partial_bytes = 0;

  std::vector<int64_t> likely;  // per dimension: its extent, or what that is likely to be
  Size items, units, unit_cost;
  size_t scratch_bytes = 0;
  // Per instruction: bit d where it depends on dimension d, and the bits below.
  std::vector<uint64_t> depends;
};

// Beside the dimensions, what an instruction may have to wait for.
constexpr int kPoint = 61;  // the outer point: results of reductions, reads of what was written
constexpr int kGuard = 62;  // the test that an inner stage has points at all
constexpr int kBody = 63;   // the innermost body of its stage
constexpr uint64_t bit_of(int n) { return uint64_t{1} << n; }

Plan make_plan(const loops::Kernel& kernel, const CpuOptions& options, const HostTarget& host);
// The kernel that a plan is to be made for: this one, or the same with short rows joined, where
// that is estimated to cost less.
loops::Kernel kernel_to_plan(const loops::Kernel& kernel, const CpuOptions& options,
                             const HostTarget& host);

// The dimensions and instructions an index is made of, by what is known of instructions so far.
uint64_t depends_of(const loops::Index& index, const std::vector<uint64_t>& of_values);
bool has_scan(const loops::Kernel& kernel, const loops::Stage& stage);
// Does it add up floating values?
inline bool is_floating_sum(const loops::Inst& inst) {
  return inst.op == loops::Op::reduce && inst.reduction == loops::Reduction::sum &&
         is_floating(inst.dtype);
}
// Must the inner stages be skipped if a size turns out to be 0?
bool needs_guard(const loops::Kernel& kernel);

}  // namespace smelt::cpu
