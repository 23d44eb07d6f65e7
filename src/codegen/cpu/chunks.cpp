// Sums of floating values in chunks. Rounding errors grow with the number of additions in a row, so
// what is added up is closed after about kRow additions: its sum goes to the next level, which is
// closed in its turn. The loops are cut so that the innermost one never runs much longer.
#include <numeric>

#include "codegen/cpu/arithmetic.h"
#include "codegen/cpu/emitter.h"

namespace smelt::cpu {
namespace {

constexpr int64_t kRow = 32;
// What an extent is taken for that is not known, in steps: two levels do for most. Where it is known
// what it is likely to be, it is taken for some times that.
constexpr int64_t kUnknownSteps = kRow * kRow * kRow;
constexpr int64_t kUnlikelyTimes = 8;

bool adds_up(const loops::Kernel& kernel, const loops::Stage& stage) {
  for (Val v = stage.begin; v < stage.end; ++v)
    if (is_floating_sum(kernel.insts[v])) return true;
  return false;
}

}  // namespace

void Emitter::plan_chunks(const loops::Stage& stage) {
  chunks_.assign(kernel_.dims(), {});
  levels_ = 0;
  if (!adds_up(kernel_, stage) || kernel_.inner.empty()) return;
  int64_t additions = 1;  // to the highest level, in one step of the loop
  const auto cut = [&](int dim) {
    const int64_t step =
        dim == plan_.vector_dim ? static_cast<int64_t>(plan_.lanes) * plan_.packs : 1;
    std::optional<int64_t> extent = kernel_.extent(dim).as_known();
    if (part_ == Part::slices && dim == plan_.slice_dim) extent = plan_.slice;
    if (!extent && plan_.likely[dim] > 0) extent = kUnlikelyTimes * plan_.likely[dim];
    int64_t steps = extent ? (*extent + step - 1) / step : kUnknownSteps;
    Chunks& chunks = chunks_[dim];
    chunks.level = levels_;
    for (int64_t length = step; steps * additions > 2 * kRow; additions = 1) {
      const int64_t count = std::max<int64_t>(1, kRow / additions);
      length *= count;
      steps = (steps + count - 1) / count;
      chunks.lengths.push_back(length);
    }
    levels_ += chunks.lengths.size();
    additions *= std::max<int64_t>(1, steps);
  };
  const int innermost = innermost_dim();
  cut(innermost);
  for (int dim = kernel_.dims() - 1; dim >= static_cast<int>(kernel_.outer.size()); --dim)
    if (dim != innermost) cut(dim);
}

// `body` for the range of the dimension, chunk by chunk if there are any.
void Emitter::in_chunks(const loops::Stage& stage, int dim, const Range& range, RangeBody body) {
  in_chunks(stage, dim, chunks_[dim].lengths.size(), range, body);
}

void Emitter::in_chunks(const loops::Stage& stage, int dim, size_t chunks, const Range& range,
                        RangeBody body) {
  if (chunks == 0) return body(range);
  const int64_t length = chunks_[dim].lengths[chunks - 1];
  counted_loop(range.begin, range.end, length, [&](Value* begin) {
    Value* end = chunk_end(begin, number(length), range.end);
    in_chunks(stage, dim, chunks - 1, {begin, end, std::gcd(range.multiple, length)}, body);
    close_chunk(stage, chunks_[dim].level + chunks - 1);
  });
}

// Adds what a level has to the next, and begins it anew.
void Emitter::close_chunk(const loops::Stage& stage, size_t level) {
  for (Val v = stage.begin; v < stage.end; ++v) {
    if (!is_floating_sum(kernel_.insts[v])) continue;
    const Accumulator& accumulator = accumulators_[v];
    const auto& from = level == 0 ? accumulator.packs : accumulator.totals[level - 1];
    const auto& to = accumulator.totals[level];
    for (size_t pack = 0; pack < from.size(); ++pack) {
      llvm::AllocaInst *total = to[pack].value, *sum = from[pack].value;
      llvm::Type* type = sum->getAllocatedType();
      ir_.CreateStore(ir_.CreateFAdd(ir_.CreateLoad(type, total), ir_.CreateLoad(type, sum)),
                      total);
      ir_.CreateStore(llvm::Constant::getNullValue(type), sum);
    }
  }
}

}  // namespace smelt::cpu
