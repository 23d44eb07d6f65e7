#include "background/background.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "base/no_threads_test.h"

namespace smelt::background {
namespace {

// In a process of its own: whether there are threads yet depends on what was run before.
template <class Check>
bool holds_in_child(const Check& check) {
  hold();
  const pid_t child = fork();
  let_go(/*in_child=*/child == 0);
  if (child == 0) {
    alarm(20);  // who waits for ever has failed
    _exit(check() ? 0 : 1);
  }
  int status = -1;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(Background, AllJobsAreDone) {
  std::atomic<int> done = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int k = 0; k < 50; ++k) submit([&] { ++done; });
      wait();
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(done, 200);
  EXPECT_EQ(pending(), 0u);
}

TEST(Background, WithoutThreadsWhoeverWaitsDoesTheJobs) {
  EXPECT_TRUE(holds_in_child([] {
    const NoThreads none;
    int done = 0;
    submit([&] { ++done; });
    submit([&] { ++done; });
    if (done != 0 || pending() != 2) return false;
    wait();
    return done == 2 && pending() == 0;
  }));
}

TEST(Background, AThreadThatIsGivenLaterDoesThem) {
  EXPECT_TRUE(holds_in_child([] {
    std::atomic<int> done = 0;
    {
      const NoThreads none;
      submit([&] { ++done; });
    }
    submit([&] { ++done; });
    wait();
    return done == 2;
  }));
}

TEST(Background, JobsGoOnInBothProcesses) {
  std::atomic<int> done = 0;
  for (int i = 0; i < 20; ++i) submit([&] { ++done; });
  EXPECT_TRUE(holds_in_child([&] {
    wait();
    return done == 20;
  }));
  wait();
  EXPECT_EQ(done, 20);
}

}  // namespace
}  // namespace smelt::background
