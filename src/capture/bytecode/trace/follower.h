// What the rooms above the trace do for those below them: calls are followed into Python functions
// by the interpreter, and frames are run by a compiled function. Who needs that knows no more of
// them than this.
#pragma once

#include <span>
#include <vector>

#include "capture/bytecode/cpython/frame.h"
#include "capture/bytecode/nodes/node.h"

namespace smelt::bytecode {

class Trace;

// What an operation gave: a new reference with its ref, or nullptr with an error set (for next():
// nullptr without an error at the end).
struct Result {
  PyObject* object = nullptr;
  Ref ref = 0;
};

// Gives back what unpack() and the like have handed out.
inline void release(std::vector<Result>& items) {
  for (const Result& item : items) Py_DECREF(item.object);
  items.clear();
}

// Follows calls: interpret/follow.h has the one there is.
class Follower {
 public:
  virtual ~Follower() = default;
  // callee(*arguments), of which the last have these names, while the trace goes on.
  virtual Result call(Trace& trace, Value callee, std::span<const Value> arguments,
                      PyObject* names) = 0;
  // next() of a generator whose frame the trace has been following; false if it has not been. What it
  // returns at its end is in a StopIteration, which is set, unless it is None.
  virtual bool next_generator(Trace& trace, PyObject* generator, Result* result) = 0;
};

// Runs frames as roots: the compiled function (run/compiled.h). Throws nothing.
class FrameRunner {
 public:
  virtual ~FrameRunner() = default;
  // Runs a frame that CPython has just made, as its eval function would.
  virtual PyObject* run_frame(PyThreadState* thread, Frame frame) = 0;
  // The same for a frame that has been run up to some instruction.
  virtual PyObject* continue_frame(PyThreadState* thread, Frame frame) = 0;
  // Whether frames of this code are to be run when they are called at a graph break.
  virtual bool adopts(PyCodeObject* code) const = 0;
};

}  // namespace smelt::bytecode
