// A frame of CPython's, across the versions that smelt supports: the one place that knows how
// _PyInterpreterFrame is laid out. Offsets are in code units.
#pragma once

#include <Python.h>

#include <optional>

struct _PyInterpreterFrame;

namespace smelt::bytecode {

using EvalFunction = PyObject* (*)(PyThreadState*, _PyInterpreterFrame*, int);

class Frame {
 public:
  explicit Frame(_PyInterpreterFrame* frame) : frame_(frame) {}

  _PyInterpreterFrame* raw() const { return frame_; }
  PyCodeObject* code() const;
  PyFunctionObject* function() const;
  PyObject* globals() const;
  PyObject* builtins() const;
  PyObject* names() const;  // f_locals of class bodies and modules; nullptr in functions

  PyObject** slots() const;  // locals, cells, free variables, then the stack
  int locals() const;        // co_nlocalsplus
  int depth() const;         // values on the stack, as last stored
  void set_depth(int depth);
  // While someone works on the stack the garbage collector must not look at it.
  void hide_stack();
  // The unit that runs next when CPython takes over.
  int next_offset() const;
  void set_next_offset(int unit);
  // The unit that is being run, for tracebacks and sys._getframe().
  void set_running(int unit);
  // Units before this one are the frame's prologue, in which it does not show up in tracebacks.
  int first_visible() const;

  bool is_generator() const;    // owned by a generator or coroutine
  PyObject* generator() const;  // borrowed
  int line() const;             // of the running unit
  std::optional<Frame> caller() const;
  // Someone has it as an object, and with it what its variables hold when it has ended.
  bool is_held() const;

 private:
  _PyInterpreterFrame* frame_;
};

// The innermost frame of Python code that the thread runs.
std::optional<Frame> running_frame(PyThreadState* thread);
// In an eval function: what its frame will return to. Only to compare.
const _PyInterpreterFrame* caller_of_new_frame(PyThreadState* thread);

// The frame of a generator that has started and not ended.
std::optional<Frame> suspended_frame(PyObject* generator);

// Makes the frame the thread's current one, as the eval loop does, for as long as it lives; counts
// one level of recursion. ok(): false with RecursionError set.
class FrameLink {
 public:
  FrameLink(PyThreadState* thread, Frame frame);
  ~FrameLink();
  FrameLink(const FrameLink&) = delete;
  FrameLink& operator=(const FrameLink&) = delete;
  bool ok() const { return ok_; }

 private:
  PyThreadState* thread_;
  _PyInterpreterFrame* previous_;
  bool ok_;
};

// CPython goes on with the frame at its next_offset(); with `raised`, by raising the error that is
// set at the running unit, whose handlers count and whose line the traceback gets.
PyObject* run_in_cpython(PyThreadState* thread, Frame frame, bool raised);
// Ends a frame that smelt ran itself with this value (stolen), or with the error that is set if it
// is nullptr, in the way the version of CPython wants it from an eval function. Handlers in the
// frame don't see the error. The stack is emptied.
PyObject* leave(PyThreadState* thread, Frame frame, PyObject* value);

// sys.settrace, profilers, coverage, monitoring: then nothing but CPython runs frames.
bool is_traced(PyThreadState* thread);

EvalFunction current_eval(PyThreadState* thread);
void set_eval(PyThreadState* thread, EvalFunction eval);

}  // namespace smelt::bytecode
