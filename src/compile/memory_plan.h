// Where buffers lie in one block of memory, so that none meets another that is in use when it is.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace smelt {

// Every offset is a multiple of it: a cache line, and the widest vector.
inline constexpr int64_t kBufferAlignment = 64;

// A thread keeps a block of this size from one run to the next: no program needs to take one that
// small.
inline constexpr int64_t kKeptBlock = 16 * 1024;

// Limits that are tried one after the other.
inline constexpr int64_t kBufferLimits[] = {64 * 1024, 16 * 1024, 4 * 1024, 1024};

struct BufferLife {
  int64_t bytes = 0;
  int32_t first = 0, last = 0;  // in use from the one step to the other, both included
};

struct MemoryPlan {
  std::vector<int64_t> offsets;  // by buffer; -1: it is not in the block
  int64_t bytes = 0;             // of the block
};

// Buffers of more than `limit` bytes are left out.
MemoryPlan plan_memory(std::span<const BufferLife> buffers, int64_t limit);

// With the largest of some limits for which the block is one that threads keep.
MemoryPlan plan_kept_memory(std::span<const BufferLife> buffers);

// As many bytes as a buffer takes in a block.
int64_t aligned_bytes(int64_t bytes);

}  // namespace smelt
