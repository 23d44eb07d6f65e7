// The least block is as large as the buffers of the worst step together, and to find a plan that
// small is NP-hard. Large buffers first, each into the smallest hole that it fits into among those
// placed before it that are in use at the same time, comes within a few percent: large ones leave
// the holes, and small ones fill them.

#include "compile/memory_plan.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace smelt {
namespace {

bool meet(const BufferLife& a, const BufferLife& b) {
  return a.first <= b.last && b.first <= a.last;
}

std::vector<int> large_first(std::span<const BufferLife> buffers, int64_t limit) {
  std::vector<int> order(buffers.size());
  std::iota(order.begin(), order.end(), 0);
  std::erase_if(order, [&](int i) { return buffers[i].bytes > limit; });
  std::ranges::stable_sort(order, [&](int a, int b) {
    if (buffers[a].bytes != buffers[b].bytes) return buffers[a].bytes > buffers[b].bytes;
    return buffers[a].last - buffers[a].first > buffers[b].last - buffers[b].first;
  });
  return order;
}

}  // namespace

int64_t aligned_bytes(int64_t bytes) {
  return (std::max<int64_t>(bytes, 1) + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
}

MemoryPlan plan_memory(std::span<const BufferLife> buffers, int64_t limit) {
  MemoryPlan plan;
  plan.offsets.assign(buffers.size(), -1);
  std::vector<int> placed;  // by offset
  for (const int buffer : large_first(buffers, limit)) {
    const int64_t wanted = aligned_bytes(buffers[buffer].bytes);
    int64_t end = 0, found = -1, smallest = std::numeric_limits<int64_t>::max();
    for (const int other : placed) {
      if (!meet(buffers[buffer], buffers[other])) continue;
      const int64_t hole = plan.offsets[other] - end;
      if (hole >= wanted && hole < smallest) {
        found = end;
        smallest = hole;
      }
      end = std::max(end, plan.offsets[other] + aligned_bytes(buffers[other].bytes));
    }
    const int64_t offset = found >= 0 ? found : end;
    plan.offsets[buffer] = offset;
    plan.bytes = std::max(plan.bytes, offset + wanted);
    const auto behind = std::ranges::upper_bound(placed, offset, {},
                                                 [&](int other) { return plan.offsets[other]; });
    placed.insert(behind, buffer);
  }
  return plan;
}

MemoryPlan plan_kept_memory(std::span<const BufferLife> buffers) {
  for (const int64_t limit : kBufferLimits)
    if (MemoryPlan plan = plan_memory(buffers, limit); plan.bytes <= kKeptBlock) return plan;
  return plan_memory(buffers, /*limit=*/-1);
}

}  // namespace smelt
