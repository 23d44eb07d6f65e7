#include "compile/memory_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace smelt {
namespace {

constexpr int64_t kNoLimit = int64_t{1} << 40;

using Offsets = std::vector<int64_t>;

// The most bytes in use at any step: no block can be smaller.
int64_t most_in_use(const std::vector<BufferLife>& buffers) {
  int64_t most = 0;
  for (const BufferLife& at : buffers) {
    int64_t bytes = 0;
    for (const BufferLife& other : buffers)
      if (other.first <= at.first && at.first <= other.last) bytes += aligned_bytes(other.bytes);
    most = std::max(most, bytes);
  }
  return most;
}

void expect_apart(const std::vector<BufferLife>& buffers, const MemoryPlan& plan) {
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (plan.offsets[i] < 0) continue;
    EXPECT_EQ(plan.offsets[i] % kBufferAlignment, 0);
    EXPECT_LE(plan.offsets[i] + buffers[i].bytes, plan.bytes);
    for (size_t k = 0; k < i; ++k) {
      const bool together =
          buffers[i].first <= buffers[k].last && buffers[k].first <= buffers[i].last;
      if (plan.offsets[k] < 0 || !together) continue;
      EXPECT_TRUE(plan.offsets[i] + buffers[i].bytes <= plan.offsets[k] ||
                  plan.offsets[k] + buffers[k].bytes <= plan.offsets[i])
          << "buffers " << k << " and " << i << " meet";
    }
  }
}

TEST(MemoryPlan, OfNothingIsEmpty) {
  const MemoryPlan plan = plan_memory({}, kNoLimit);
  EXPECT_EQ(plan.bytes, 0);
  EXPECT_TRUE(plan.offsets.empty());
}

TEST(MemoryPlan, GivesAPlaceToTheNextOnceItIsFree) {
  const std::vector<BufferLife> chain = {{100, 0, 1}, {100, 1, 2}, {100, 2, 3}, {100, 3, 4}};
  const MemoryPlan plan = plan_memory(chain, kNoLimit);
  EXPECT_EQ(plan.offsets, (Offsets{0, 128, 0, 128}));
  EXPECT_EQ(plan.bytes, 256);
}

TEST(MemoryPlan, FillsTheSmallestHole) {
  // In step 1 there are holes of 512 and 192 bytes where the second and fourth were in step 0.
  const std::vector<BufferLife> buffers = {{1024, 0, 1}, {512, 0, 0}, {256, 0, 1},
                                           {192, 0, 0},  {160, 0, 1}, {130, 1, 1}};
  const MemoryPlan plan = plan_memory(buffers, kNoLimit);
  EXPECT_EQ(plan.offsets, (Offsets{0, 1024, 1536, 1792, 1984, 1792}));
}

TEST(MemoryPlan, LeavesOutLargeBuffers) {
  const std::vector<BufferLife> buffers = {{100, 0, 1}, {101, 0, 1}, {64, 0, 1}};
  const MemoryPlan plan = plan_memory(buffers, 100);
  EXPECT_EQ(plan.offsets, (Offsets{0, -1, 128}));
  EXPECT_EQ(plan.bytes, 192);
}

TEST(MemoryPlan, HasAPlaceForEmptyBuffers) {
  const std::vector<BufferLife> buffers = {{0, 0, 0}, {0, 0, 0}};
  const MemoryPlan plan = plan_memory(buffers, kNoLimit);
  EXPECT_EQ(plan.bytes, 2 * kBufferAlignment);
}

TEST(MemoryPlan, LeavesOutWhatAThreadWouldNotKeep) {
  const std::vector<BufferLife> buffers = {{30'000, 0, 1}, {4'000, 0, 1}, {400, 0, 1}};
  EXPECT_EQ(plan_kept_memory(buffers).offsets, (Offsets{-1, 0, 4032}));
  const std::vector<BufferLife> many(100, {.bytes = 1'000, .first = 0, .last = 1});
  EXPECT_EQ(plan_kept_memory(many).offsets, Offsets(100, -1));
  EXPECT_EQ(plan_kept_memory(many).bytes, 0);
}

TEST(MemoryPlan, OfRandomLivesIsTightAndKeepsThemApart) {
  std::mt19937 random(1);
  int64_t all = 0, least = 0;
  for (int round = 0; round < 200; ++round) {
    std::vector<BufferLife> buffers(1 + random() % 60);
    for (BufferLife& buffer : buffers) {
      buffer.bytes = static_cast<int64_t>(random() % (random() % 2 ? 300 : 20'000));
      buffer.first = static_cast<int32_t>(random() % 50);
      buffer.last = buffer.first + static_cast<int32_t>(random() % (random() % 8 ? 6 : 50));
    }
    const MemoryPlan plan = plan_memory(buffers, kNoLimit);
    expect_apart(buffers, plan);
    EXPECT_GE(plan.bytes, most_in_use(buffers));
    EXPECT_LE(2 * plan.bytes, 3 * most_in_use(buffers));
    all += plan.bytes;
    least += most_in_use(buffers);
    const MemoryPlan small = plan_memory(buffers, 256);
    expect_apart(buffers, small);
    for (size_t i = 0; i < buffers.size(); ++i)
      EXPECT_EQ(small.offsets[i] >= 0, buffers[i].bytes <= 256);
  }
  EXPECT_LE(static_cast<double>(all), 1.05 * static_cast<double>(least));
}

}  // namespace
}  // namespace smelt
