#include "bridge/machine/aten_host.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "runtime/share_units.h"

namespace smelt {
namespace {

struct Seen {
  std::mutex mutex;
  std::condition_variable arrived;
  int expected_threads = 1;
  std::set<std::thread::id> threads;
  std::vector<int> runs;  // of each unit
} seen;

bool notes_units(void* const*, const int64_t*, const uint64_t*, int64_t begin, int64_t end,
                 std::byte*) {
  std::unique_lock lock(seen.mutex);
  seen.threads.insert(std::this_thread::get_id());
  // Whoever is early would do it all.
  if (seen.expected_threads > 1) {
    seen.arrived.notify_all();
    seen.arrived.wait_for(lock, std::chrono::seconds(20),
                          [] { return std::ssize(seen.threads) >= seen.expected_threads; });
  }
  for (int64_t unit = begin; unit < end; ++unit) ++seen.runs[unit];
  return begin != 0;
}

UnitKernel code(int64_t units, int64_t cost) {
  UnitKernel kernel;
  kernel.run = notes_units;
  kernel.units = units;
  kernel.unit_cost = cost;
  seen.threads.clear();
  seen.runs.assign(units, 0);
  return kernel;
}

bool launch(const UnitKernel& kernel) {
  const UnitLaunch one{.kernel = &kernel};
  return share_units({&one, 1}, {}, aten_host());
}

bool each_once() {
  return std::ranges::all_of(seen.runs, [](int runs) { return runs == 1; });
}

TEST(AtenHost, SharesLargeWorkBetweenThreads) {
  const int before = at::get_num_threads();
  at::set_num_threads(2);
  seen.expected_threads = 2;
  EXPECT_FALSE(launch(code(1001, 100'000))) << "one part reports failure";
  seen.expected_threads = 1;
  EXPECT_TRUE(each_once());
  EXPECT_EQ(seen.threads.size(), 2);
  at::set_num_threads(1);
  EXPECT_FALSE(launch(code(1001, 100'000)));
  EXPECT_TRUE(each_once());
  EXPECT_EQ(seen.threads.size(), 1);
  at::set_num_threads(before);
}

TEST(AtenHost, KeepsSmallAndOrderedWorkOnItsThread) {
  const int before = at::get_num_threads();
  at::set_num_threads(2);
  EXPECT_FALSE(launch(code(10, 10)));
  EXPECT_TRUE(each_once());
  EXPECT_EQ(seen.threads, std::set{std::this_thread::get_id()});
  UnitKernel ordered = code(1001, 100'000);
  ordered.ordered = true;
  EXPECT_FALSE(launch(ordered));
  EXPECT_EQ(seen.threads, std::set{std::this_thread::get_id()});
  EXPECT_TRUE(launch(code(0, 10)));
  at::set_num_threads(before);
}

TEST(AtenHost, SharesSeveralKernelsBetweenThreads) {
  const int before = at::get_num_threads();
  for (const int threads : {1, 2}) {
    at::set_num_threads(threads);
    std::vector<UnitKernel> kernels;
    for (int i = 0; i < 40; ++i) kernels.push_back(code(25, 1000 * (1 + i % 7)));
    kernels.push_back(code(0, 10));
    kernels.push_back(code(25, 1000));
    kernels.back().ordered = true;
    std::vector<UnitLaunch> launches;
    for (const UnitKernel& kernel : kernels) launches.push_back({.kernel = &kernel});
    seen.runs.assign(25, 0);
    seen.expected_threads = threads;
    EXPECT_FALSE(share_units(launches, {}, aten_host())) << "first units report failure";
    seen.expected_threads = 1;
    EXPECT_TRUE(std::ranges::all_of(seen.runs, [](int runs) { return runs == 41; }));
    EXPECT_EQ(seen.threads.size(), threads);
  }
  at::set_num_threads(before);
}

std::vector<void*> finished;
bool notes_finish(void* const* buffers, const int64_t*, const uint64_t*, int64_t begin, int64_t end,
                  std::byte*) {
  EXPECT_TRUE(each_once()) << "all units are done";
  for (int64_t unit = begin; unit < end; ++unit) finished.push_back(buffers[0]);
  return true;
}
bool is_good(void* const* buffers, const int64_t*, const uint64_t*, int64_t begin, int64_t end,
             std::byte*) {
  EXPECT_NE(buffers[0], nullptr);
  std::scoped_lock lock(seen.mutex);
  for (int64_t unit = begin; unit < end; ++unit) ++seen.runs[unit];
  return true;
}

TEST(AtenHost, FinishesOnceWhenAllUnitsAreDone) {
  const int before = at::get_num_threads();
  at::set_num_threads(2);
  UnitKernel kernel = code(101, 100'000);
  kernel.run = is_good;
  kernel.finish = notes_finish;
  kernel.finish_units = 3;
  kernel.partial_bytes = 100;
  EXPECT_TRUE(launch(kernel));
  EXPECT_EQ(finished.size(), 3);
  kernel.run = notes_units;
  seen.runs.assign(101, 0);
  EXPECT_FALSE(launch(kernel));
  EXPECT_EQ(finished.size(), 3) << "nothing to finish after a failure";
  at::set_num_threads(before);
}

}  // namespace
}  // namespace smelt
