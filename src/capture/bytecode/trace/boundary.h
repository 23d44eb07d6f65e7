// Where C++ exceptions end. CPython calls smelt (eval functions, vectorcall, slots of types) from
// frames of C that no exception may pass, and each of these calls must do what it was called for: a
// frame that was begun is run to its end exactly once. So there are two kinds of code behind them:
//
//   what runs the program    Interpreter::run, complete(), run_in_cpython(), leave(): throws
//                            nothing
//   what keeps account       guards, steps, the log, segments, reports: may throw. keep_account()
//                            runs it: the account is lost then, never the run
//
// An instruction is both. If its handler throws before it has done anything that must not be done
// twice (note_act), CPython runs it instead; else the program gets a RuntimeError, which is the one
// thing that is left to do. std::exception is what is caught: a thread that CPython ends while the
// process exits unwinds by something else, which has to pass.
#pragma once

#include <cstdint>
#include <exception>

#include "capture/bytecode/trace/trace.h"
#include "diagnostics/log.h"

namespace smelt::bytecode {

// What this thread has done for programs so far: calls, steps of iterators, changes of objects.
inline thread_local uint64_t acts_so_far = 0;
inline void note_act() { ++acts_so_far; }

// Runs a part of smelt's own bookkeeping, for a trace if there is one. False: it threw, and the
// trace, if any, has stopped and gives no segment.
template <class Part>
bool keep_account(Trace* trace, const Part& part) {
  try {
    part();
    return true;
  } catch (const std::exception& problem) {
    if (trace != nullptr) trace->fail(problem);
  }
  return false;
}

}  // namespace smelt::bytecode
