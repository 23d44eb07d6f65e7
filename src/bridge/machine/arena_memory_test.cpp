#include "bridge/machine/arena_memory.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <thread>

#include "compile/memory_plan.h"
#include "diagnostics/counters.h"

namespace smelt {
namespace {

constexpr int64_t kLarge = 2 * kKeptBlock;

TEST(ArenaMemory, ShowsAnOpTheTensorAndNotTheBlock) {
  const ArenaMemory arena(kLarge);
  const at::Tensor tensor = arena.tensor(arena.at(128), {2, 3}, {1, 2}, at::kFloat);
  EXPECT_EQ(tensor.data_ptr(), arena.at(128));
  EXPECT_EQ(tensor.storage().nbytes(), 6 * sizeof(float));
  EXPECT_EQ(tensor.storage_offset(), 0);
  tensor.fill_(7);
  EXPECT_EQ(tensor.t().sum().item<float>(), 42);
  ArenaMemory::leave(tensor);
  EXPECT_EQ(tensor.data_ptr(), arena.at(128));  // nobody else had it
}

TEST(ArenaMemory, GivesWhoHoldsATensorACopy) {
  const ArenaMemory arena(kLarge);
  const int64_t copies = read(Counter::arena_copies);
  const at::Tensor first = arena.tensor(arena.at(0), {8}, {1}, at::kFloat).fill_(1);
  const at::Tensor second = arena.tensor(arena.at(64), {8}, {1}, at::kFloat).fill_(2);
  const at::Tensor same = first, view = second.slice(0, 2, 5);
  ArenaMemory::leave(first);
  ArenaMemory::leave(second);
  std::memset(arena.at(0), 0, 128);
  EXPECT_TRUE(at::equal(same, at::ones({8})));
  EXPECT_TRUE(at::equal(view, 2 * at::ones({3})));
  EXPECT_EQ(read(Counter::arena_copies), copies + 2);
  same.resize_({100});  // a tensor like any other
  EXPECT_TRUE(at::equal(same.slice(0, 0, 8), at::ones({8})));
}

TEST(ArenaMemory, OutlivesTheRunWithATensorInIt) {
  at::Tensor tensor;
  for (const int64_t bytes : {kLarge, int64_t{256}}) {
    {
      const ArenaMemory arena(bytes);
      tensor = arena.tensor(arena.at(0), {8}, {1}, at::kFloat).fill_(3);
    }
    const ArenaMemory next(bytes);
    std::memset(next.at(0), 0, bytes);
    EXPECT_TRUE(at::equal(tensor, 3 * at::ones({8})));
  }
}

TEST(ArenaMemory, HasOneBlockForEachRunAtATime) {
  const std::byte* kept = nullptr;
  {
    const ArenaMemory outer(256), inner(512);
    kept = outer.at(0);
    EXPECT_NE(kept, inner.at(0));
    std::thread([&] { EXPECT_NE(ArenaMemory(256).at(0), kept); }).join();
  }
  EXPECT_EQ(ArenaMemory(64).at(0), kept);  // the outer one went last
}

}  // namespace
}  // namespace smelt
