// The trace that is under way on a thread: which frames it follows, and what it makes of Python
// code that C code calls.
#pragma once

#include <functional>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "capture/bytecode/cpython/frame.h"
#include "capture/bytecode/trace/follower.h"
#include "capture/bytecode/trace/trace.h"

namespace smelt::bytecode {

inline bool is_following(Trace* trace) { return trace != nullptr && trace->active(); }

// Whose Python code may run unseen while a trace is under way, because what it does depends on
// nothing but what is guarded. Any other frame is followed or ends the trace.
enum class Trust : uint8_t {
  nobody,
  libraries,  // PyTorch's own, and the machinery of Python named in run/hook.cpp; and, below an op
              // that the log has, whatever implements the op: each run calls it again
  everybody,  // the caller says why
};

// A call of a Python function, or a resumption of a generator, whose frame is to be followed.
struct Pending {
  PyObject* callee = nullptr;  // function or generator
  Ref callee_ref = 0;
  std::span<const Value> arguments;  // of the function; of a generator: what is sent
  PyObject* names = nullptr;         // keyword names of the last arguments
  bool taken = false;                // the hook saw the frame
  Ref result = 0;                    // of what the frame returned or yielded
};

// A trace that is under way on a thread.
struct Tracing {
  Trace* trace = nullptr;
  FrameRunner* runner = nullptr;  // for whom
  std::vector<Frame> frames;      // those being followed, the root first
  Pending* pending = nullptr;
  Trust trust = Trust::nobody;  // whose frames are run by CPython without ending the trace
  int unlogged = 0;             // > 0: the log is paused
  bool transparent = false;     // C code runs whose callbacks are followed: Transparent
  bool looks_inside = false;    // and it looks into what they return
  std::unordered_set<PyObject*> callbacks;  // Python functions that such C code was given
  int called_back = 0;                      // > 0: followed code that C code has called
  int units = 0;                            // > 0: in a call of such (interpret/follow.h)
  struct Callee {
    Object code;
    Place place;
  };
  std::vector<Callee> stopped_in;  // callees in which the trace stopped, the innermost first
  // Another thread has put another compiler's hook in the place of smelt's (torch.compile does so
  // when one of its functions begins or ends): frames may have been run unseen.
  bool has_lost_sight = false;
  // Makes a segment of a trace that has stopped, and drops what the trace holds; once.
  std::function<void()> end;
};

// The trace that is under way on this thread, stopped or not; nullptr if there is none.
Tracing* current_tracing();
// Only if it has not stopped.
Tracing* active_tracing();
// If the trace has stopped, its segment is made now, before code runs that is not part of it: what
// the program has dropped is gone then. Not while C code is in the middle of something.
void end_stopped(const Trace& trace);

// Puts another one in its place, or none; returns the one that was.
Tracing* exchange_tracing(Tracing* tracing);
// True while this thread is inside a trace.
bool is_tracing();

// Python code that C code calls in the meantime is run by CPython and not followed, if it is
// trusted. The log goes on, unless `log` is false.
class Unfollowed {
 public:
  explicit Unfollowed(Trace* trace, bool log = true, Trust trust = Trust::libraries);
  ~Unfollowed();
  Unfollowed(const Unfollowed&) = delete;
  Unfollowed& operator=(const Unfollowed&) = delete;

 private:
  Trace* trace_;
  bool log_;
  Trust outer_ = Trust::nobody;
};

// C code that decides by nothing but what is known already, and by what the Python code says that
// it calls back. Such code is followed: special methods of the objects' classes, generators that
// are being followed, and the functions that may_call_back() was told of. What a callback returns
// is settled, with `looks_inside` to the last element. A call of this kind is not repeated by a
// cached call: only what it did is.
class Transparent {
 public:
  explicit Transparent(Trace* trace, bool looks_inside = false);
  ~Transparent();
  Transparent(const Transparent&) = delete;
  Transparent& operator=(const Transparent&) = delete;

 private:
  bool entered_ = false, transparent_ = false, looks_inside_ = false;
  Trust trust_ = Trust::nobody;
};

// C code that each cached call runs again, by a step or with the guards. Special methods that it
// calls are followed for what they depend on. Since they are called again as well, the trace ends
// if they do anything that shows.
class Repeated {
 public:
  explicit Repeated(Trace* trace);
  ~Repeated();
  Repeated(const Repeated&) = delete;
  Repeated& operator=(const Repeated&) = delete;

 private:
  Trace* trace_;
  const Transparent transparent_;
  Trace::Mark start_;
  size_t ops_ = 0;
};
// C code gets this function or bound method to call. False if it is nothing of the kind.
bool may_call_back(Trace& trace, Value function);

}  // namespace smelt::bytecode
