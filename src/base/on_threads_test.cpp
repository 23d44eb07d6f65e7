#include "base/on_threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>

#include "base/no_threads_test.h"

namespace smelt {
namespace {

TEST(OnThreads, EachOnce) {
  std::atomic<int> sum = 0;
  on_threads(100, [&](size_t i) { sum += static_cast<int>(i); });
  EXPECT_EQ(sum, 4950);
  on_threads(0, [&](size_t) { sum = 0; });
  EXPECT_EQ(sum, 4950);
}

TEST(OnThreads, AnExceptionIsThrownWhenAllAreDone) {
  std::atomic<int> done = 0;
  const auto body = [&](size_t i) {
    ++done;
    if (i == 7) throw std::runtime_error("seven");
  };
  EXPECT_THROW(on_threads(20, body), std::runtime_error);
  EXPECT_EQ(done, 20);
}

TEST(OnThreads, WithoutMoreThreadsThisOneDoesAll) {
  const NoThreads none;
  std::atomic<int> done = 0;
  on_threads(20, [&](size_t) { ++done; });
  EXPECT_EQ(done, 20);
}

}  // namespace
}  // namespace smelt
