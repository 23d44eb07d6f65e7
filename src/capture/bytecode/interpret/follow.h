// Python functions and generators followed into their frames (follow.cpp), and what is done for any
// callee (calls.cpp).
#pragma once

#include "capture/bytecode/interpret/callees.h"
#include "capture/bytecode/trace/tracing.h"

namespace smelt::bytecode {

// Follows the calls of traces.
Follower& follower();

// What is done for any callee while the trace goes on.
Result follow_call(Trace* trace, Value callee, std::span<const Value> arguments, PyObject* names);
// A Python function called with the interpreter following into its frame.
Result call_function(Trace& trace, Value function, std::span<const Value> arguments,
                     PyObject* names);
// True if the frame is the pending one; then it has been run, with this result.
bool follow_frame(Tracing& tracing, PyThreadState* thread, Frame frame, bool throwing,
                  PyObject** result);
// next() or send() on a generator that the trace follows; false if it does not.
bool send_to_generator(Trace& trace, PyObject* generator, Value sent, PySendResult* status,
                       Result* result);
// next() of a generator whose frame the trace has been following; false if it has not been. What it
// returns at its end is in a StopIteration, which is set, unless it is None.
bool next_generator(Trace& trace, PyObject* generator, Result* result);

}  // namespace smelt::bytecode
