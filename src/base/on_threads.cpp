#include "base/on_threads.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace smelt {
namespace {

constexpr size_t kMostThreads = 16;

}  // namespace

void on_threads(size_t count, const std::function<void(size_t)>& body) {
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr error;
  const auto work = [&] {
    for (size_t i = next++; i < count; i = next++) {
      try {
        body(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!error) error = std::current_exception();
      }
    }
  };
  const size_t wanted =
      std::min<size_t>({count, std::thread::hardware_concurrency(), kMostThreads});
  std::vector<std::thread> others;
  others.reserve(wanted);
  try {
    while (others.size() + 1 < wanted) others.emplace_back(work);
  } catch (const std::exception&) {
    // Those that there are do all of it.
  }
  work();
  for (std::thread& thread : others) thread.join();
  if (error) std::rethrow_exception(error);
}

}  // namespace smelt
