// The clock that decisions are made by. Tests set one of their own, so that nothing depends on how
// fast the machine is just now.
#pragma once

#include <cstdint>
#include <functional>

namespace smelt {

// Nanoseconds since some moment.
int64_t now_ns();
// Empty: the machine's. Not while other threads ask.
void set_clock(std::function<int64_t()> clock);
// Nanoseconds that this thread has computed for. What else the machine does is no part of them.
int64_t thread_cpu_ns();

// Nanoseconds that this thread has waited for code, since it began: a call that does so says nothing
// about the next.
int64_t code_ns();
void add_code_ns(int64_t ns);

}  // namespace smelt
