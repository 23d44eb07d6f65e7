#include "diagnostics/clock.h"

#include <time.h>

#include <chrono>
#include <utility>

namespace smelt {
namespace {

std::function<int64_t()>& given_clock() {
  static std::function<int64_t()> clock;
  return clock;
}

thread_local int64_t waited_ns = 0;

}  // namespace

int64_t now_ns() {
  if (given_clock()) return given_clock()();
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void set_clock(std::function<int64_t()> clock) { given_clock() = std::move(clock); }

int64_t thread_cpu_ns() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::chrono::nanoseconds(std::chrono::seconds(now.tv_sec)).count() + now.tv_nsec;
}

int64_t code_ns() { return waited_ns; }
void add_code_ns(int64_t ns) { waited_ns += ns; }

}  // namespace smelt
