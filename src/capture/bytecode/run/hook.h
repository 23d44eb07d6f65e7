// The function that CPython calls to run a frame, while smelt wants to see frames: for the moment
// in which a compiled function's frame is made, during a trace, and during a call at a graph break.
// It is installed no longer than that, because it makes every Python call slower, and hands on what
// it does not want to the function that was there before.
#pragma once

#include "capture/bytecode/cpython/frame.h"
#include "capture/bytecode/trace/tracing.h"

namespace smelt::bytecode {

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
  FrameRunner* outer_adopter_;
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

// Frames of code that `runner` adopts are run by it for as long as this lives; with nullptr, none
// are.
class AdoptionScope {
 public:
  AdoptionScope(PyThreadState* thread, FrameRunner* runner);
  ~AdoptionScope();
  AdoptionScope(const AdoptionScope&) = delete;
  AdoptionScope& operator=(const AdoptionScope&) = delete;

 private:
  HookScope hook_;
  FrameRunner* outer_;
};

// Calls the callable, whose frame will be that of `function`; `runner` runs that frame.
PyObject* call_with_frame(FrameRunner& runner, PyThreadState* thread, PyFunctionObject* function,
                          PyObject* callable, PyObject* const* arguments, size_t nargsf,
                          PyObject* names);

}  // namespace smelt::bytecode
