// What a run depended on, so that a cached call can ask for it. On constants and on what the trace
// made, guards say nothing new. A number that the tensor program reads no guard can know: where the
// run depends on it, that is a guess, which the program checks.
#pragma once

#include "capture/bytecode/account/backward_pass.h"
#include "capture/bytecode/account/guesses.h"
#include "capture/bytecode/account/requirements.h"
#include "capture/bytecode/trace/trace_objects.h"

namespace smelt::bytecode {

class TraceGuards : public TraceObjects {
 public:
  void guard_type(Value value);
  void guard_same(Value value);
  void guard_function(Value function);
  void guard_alias(Value a, Value b, bool same);
  // C code that looks at some state and calls no Python code gave a constant. has_read(): it has
  // been asked before.
  void guard_reading(PyObject* function, PyObject* arguments, PyObject* value);
  bool has_read(PyObject* function, PyObject* arguments) const;
  // Asks it, and guards the answer; empty if that is no constant.
  Object read_state(PyObject* function, PyObject* arguments);

  Guesses guesses;
  // Whether this line of the program has not been guessed about that often yet.
  bool may_guess_here(int most);
  BackwardPass backward;

 protected:
  ~TraceGuards() = default;

  void guard(Ref ref, uint16_t bits, bool truth = false);
  // A guard that is asked for the first time, on what is computed with the guards.
  virtual void note_guard(Ref, uint16_t, bool) {}
  void settle_elements(Tracked& container);
  // The classes of objects, what these are like, and the code of functions.
  void note_end() override;

  Requirements required_;

 private:
  void note_types();
  void expect(Ref number, bool truth);
  void expect_value(Ref number);
};

}  // namespace smelt::bytecode
