// The function that CPython calls to run a frame, while smelt wants to see frames: for the moment
// in which a compiled function's frame is made, during a trace, and during a call at a graph break.
// It is installed no longer than that, because it makes every Python call slower, and hands on what
// it does not want to the function that was there before.
#pragma once

#include <functional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "capture/bytecode/frame.h"
#include "capture/bytecode/operations.h"
#include "capture/bytecode/segment.h"

namespace smelt::bytecode {

class Compiled;

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
  Compiled* compiled = nullptr;  // for whom
  std::vector<Frame> frames;     // those being followed, the root first
  Pending* pending = nullptr;
  Trust trust = Trust::nobody;  // whose frames are run by CPython without ending the trace
  int unlogged = 0;             // > 0: the log is paused
  // The generators that are followed, with the refs of their slots.
  std::unordered_map<PyObject*, std::vector<Ref>> generators;
  bool transparent = false;                 // C code runs whose callbacks are followed: Transparent
  bool looks_inside = false;                // and it looks into what they return
  std::unordered_set<PyObject*> callbacks;  // Python functions that such C code was given
  int called_back = 0;                      // > 0: followed code that C code has called
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

// The thread runs code of a compiled function's call: smelt.is_compiling(). Not what is disabled.
bool is_in_compiled_call();

// The hook is installed for as long as one of these lives, or until remove().
class HookScope {
 public:
  explicit HookScope(PyThreadState* thread);
  ~HookScope() { remove(); }
  HookScope(const HookScope&) = delete;
  HookScope& operator=(const HookScope&) = delete;
  // False if someone else has taken it out or put his own on top of it.
  bool is_in_place() const;
  void remove();

 private:
  PyThreadState* thread_;  // nullptr: removed
};

// The thread traces for as long as this lives. Nothing is collected meanwhile: finalisers would be
// seen as code that the traced function calls.
class TracingScope {
 public:
  TracingScope(PyThreadState* thread, Tracing& tracing);
  ~TracingScope();
  TracingScope(const TracingScope&) = delete;
  TracingScope& operator=(const TracingScope&) = delete;

  // The trace has stopped: code that runs from here on is not part of it.
  void leave_process_alone();

 private:
  Tracing& tracing_;
  HookScope hook_;
  Tracing* outer_;
  Compiled* outer_adopter_;
  bool holds_collector_ = true;
};

// Collector and hook belong to the whole process. For as long as this lives they are as if this
// thread did not trace: while a segment is made, which takes long and lets other threads run.
class ProcessLeftAlone {
 public:
  explicit ProcessLeftAlone(PyThreadState* thread);
  ~ProcessLeftAlone();
  ProcessLeftAlone(const ProcessLeftAlone&) = delete;
  ProcessLeftAlone& operator=(const ProcessLeftAlone&) = delete;

 private:
  PyThreadState* thread_;
  int installs_, holds_;
};

// Frames of code that `compiled` adopts are run by it for as long as this lives; with nullptr, none
// are.
class AdoptionScope {
 public:
  AdoptionScope(PyThreadState* thread, Compiled* compiled);
  ~AdoptionScope();
  AdoptionScope(const AdoptionScope&) = delete;
  AdoptionScope& operator=(const AdoptionScope&) = delete;

 private:
  HookScope hook_;
  Compiled* outer_;
};

// Calls the callable, whose frame will be that of `function`; `compiled` runs that frame.
PyObject* call_with_frame(Compiled& compiled, PyThreadState* thread, PyFunctionObject* function,
                          PyObject* callable, PyObject* const* arguments, size_t nargsf,
                          PyObject* names);

// inline.cpp: true if the frame is the pending one; then it has been run, with this result.
bool follow_frame(Tracing& tracing, PyThreadState* thread, Frame frame, bool throwing,
                  PyObject** result);
// next() or send() on a generator that the trace follows; false if it does not.
bool send_to_generator(Trace& trace, PyObject* generator, Value sent, PySendResult* status,
                       Result* result);

}  // namespace smelt::bytecode
