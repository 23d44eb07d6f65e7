// Threads that compile while calls go on (options={"background": True}). One queue for the process.
// It can be held up for a fork, and is ended before the process is: no thread is in the middle of a
// compiler then.
#pragma once

#include <cstddef>
#include <functional>

namespace smelt::background {

// A job says itself what went wrong: what it throws is lost. It is dropped where the process ends
// before its turn.
void submit(std::function<void()> job);

// Jobs that wait or run.
size_t pending();
// Until there are none. Does them itself where the system gives no threads.
void wait();

// Around a fork. hold() waits for the jobs that run, and none begins until let_go(); that is called
// in both processes. Jobs that wait are done in both.
void hold();
void let_go(bool in_child);

// Waits for the jobs that run and drops the others, as it does with what is submitted later.
void end();

}  // namespace smelt::background
