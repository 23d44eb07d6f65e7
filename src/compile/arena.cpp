// What an arena saves is the allocator's work, and where kernels alone read a buffer, the tensor
// around it. That is a fraction of a microsecond per buffer, however large: it counts for small
// ones only. A thread keeps a small block from run to run, so that it costs nothing at all. Where
// sizes depend on symbols, a run has that one or none.
//
// A larger one trades memory for time: it is there from the first step of a run to the last, also
// where little of it is in use. So buffers up to a limit are placed, and the limit is lowered until
// - no step of the program holds more than the worst one did without an arena,
// - no call holds noticeably more than without: the libraries behind it take memory of their own,
//   of which nothing is known, so that any call may be where a program takes most.

#include "compile/arena.h"

#include <algorithm>

#include "compile/blocks.h"
#include "compile/memory_plan.h"
#include "diagnostics/counters.h"

namespace smelt {
namespace {

constexpr int64_t kNoticeable = 64;  // one part in so many

class Placing {
 public:
  Placing(const Graph& graph, const Schedule& schedule, Program& program)
      : program_(program),
        blocks_(blocks_of(graph, schedule, program)),
        hints_(program.symbols.hints()) {
    for (const Unit& unit : schedule.order)
      calls_.push_back(unit.node >= 0 && !graph.nodes[unit.node].traits.view &&
                       !graph.nodes[unit.node].traits.effect);
    find_buffers();
  }

  void run() {
    if (buffers_.size() < 2) return;  // one brings nothing
    const bool known = std::ranges::all_of(
        buffers_, [](const Arena::Buffer& buffer) { return buffer.bytes.is_known(); });
    if (!known) return use(nullptr);
    for (const int64_t limit : kBufferLimits) {
      const MemoryPlan plan = plan_memory(lives_, limit);
      if (plan.bytes > kKeptBlock && takes_more(plan)) continue;
      const auto is_placed = [](int64_t offset) { return offset >= 0; };
      if (std::ranges::count_if(plan.offsets, is_placed) >= 2) use(&plan);
      return;
    }
  }

 private:
  // Kernels of a batch run at the same time: what one writes is in use when the first one starts.
  void find_buffers() {
    std::vector<int32_t> batch_first(program_.steps.size());
    for (size_t i = 1; i < batch_first.size(); ++i)
      batch_first[i] =
          program_.steps[i - 1].with_next ? batch_first[i - 1] : static_cast<int32_t>(i);
    for (size_t i = 0; i < blocks_.size(); ++i) {
      if (!blocks_[i].inside) continue;
      const Size bytes = bytes_of(type_of(program_, blocks_[i]));
      buffer_blocks_.push_back(i);
      buffers_.push_back({bytes, batch_first[blocks_[i].first], blocks_[i].last});
      lives_.push_back({bytes.evaluate(hints_), buffers_.back().first, buffers_.back().last});
    }
  }

  // By step, the bytes that the program holds then.
  std::vector<int64_t> held(const MemoryPlan* plan) const {
    std::vector<int64_t> change(program_.steps.size() + 1);
    std::vector<bool> placed(blocks_.size());
    for (size_t i = 0; plan && i < lives_.size(); ++i)
      placed[buffer_blocks_[i]] = plan->offsets[i] >= 0;
    for (size_t i = 0; i < blocks_.size(); ++i) {
      if (placed[i]) continue;
      const int64_t bytes = aligned_bytes(bytes_of(type_of(program_, blocks_[i])).evaluate(hints_));
      change[blocks_[i].first] += bytes;
      change[blocks_[i].last + 1] -= bytes;
    }
    int64_t now = plan ? plan->bytes : 0;
    for (int64_t& bytes : change) bytes = now += bytes;
    return change;
  }

  bool takes_more(const MemoryPlan& plan) const {
    const std::vector<int64_t> before = held(nullptr), after = held(&plan);
    if (std::ranges::max(after) > std::ranges::max(before)) return true;
    for (size_t i = 0; i < calls_.size(); ++i)
      if (calls_[i] && after[i] - before[i] > before[i] / kNoticeable) return true;
    return false;
  }

  // Null: it is planned when sizes are known.
  void use(const MemoryPlan* plan) {
    program_.arena.buffers = buffers_;
    if (plan) {
      program_.arena.offsets = plan->offsets;
      program_.arena.bytes = plan->bytes;
    }
    for (Step& step : program_.steps)
      if (step.kernel >= 0) step.arena.assign(step.results.size(), -1);
    for (size_t i = 0; i < buffers_.size(); ++i) {
      if (plan && plan->offsets[i] < 0) continue;
      for (const Block::Made made : blocks_[buffer_blocks_[i]].made)
        program_.steps[made.step].arena[made.result] = static_cast<int32_t>(i);
      count(Counter::arena_buffers);
    }
  }

  Program& program_;
  const std::vector<Block> blocks_;
  const std::vector<int64_t> hints_;
  std::vector<bool> calls_;            // by step: what it calls may take memory
  std::vector<size_t> buffer_blocks_;  // by buffer
  std::vector<Arena::Buffer> buffers_;
  std::vector<BufferLife> lives_;  // by buffer
};

}  // namespace

void place_in_arena(const Graph& graph, const Schedule& schedule, Program& program) {
  Placing(graph, schedule, program).run();
}

}  // namespace smelt
