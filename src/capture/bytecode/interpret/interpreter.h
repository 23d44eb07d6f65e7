// Runs a frame of CPython's in place, instruction by instruction, and tells the trace what happens.
// One object per frame activation.
#pragma once

#include <string>
#include <unordered_set>
#include <vector>

#include "capture/bytecode/interpret/instruction_handlers.h"

namespace smelt::bytecode {

// What a run of a frame came to.
enum class FrameOutcome : uint8_t {
  returned,     // take_value()
  yielded,      // a value, which is still on the stack
  raised,       // no handler in this frame
  stopped,      // the trace has stopped, or the limit was reached: go on at next_offset()
  unsupported,  // the instruction at next_offset() is one that only CPython can run
  generator,    // the instruction at next_offset() makes the frame a generator's
};

class Interpreter final : public InstructionHandlers {
 public:
  // `refs`: one per slot (locals and stack size), those in use filled in; empty without a trace.
  Interpreter(PyThreadState* thread, Frame frame, Trace* trace, bool is_root, std::vector<Ref> refs)
      : InstructionHandlers(thread, frame, trace, is_root, std::move(refs)) {}

  // From frame.next_offset() on; with `throwing` the error that is set is raised there first.
  // `limit`: so many instructions at most, 0 for no limit. A trace that stops lets the current
  // instruction finish. Throws nothing.
  FrameOutcome run(bool throwing, int limit = 0);

  // What is left to be done for an outcome, by CPython's eval loop: return from the frame, yield,
  // raise the error in the caller (the frame gets into the traceback only here), or go on with it.
  PyObject* complete(FrameOutcome outcome);

  // The trace of the root, which is at its start, shall end in front of these if it can.
  void expect_breaks(const ExpectedBreaks* breaks) { expected_ = breaks; }
  bool has_met_expected() const { return has_met_expected_; }  // it has ended there

  // The root's instructions since the last one in front of which the trace could have ended.
  const std::unordered_set<int>& between_checkpoints() const { return between_checkpoints_; }
  // CPython is about to clear the frame.
  void let_go_of_frame();

 private:
  Flow guarded(Flow (Interpreter::*part)());
  Flow run_instruction();
  void checkpoint();
  void end_if_expected();
  void check_length();
  void note_handlers();
  FrameOutcome pause(FrameOutcome outcome, int offset);
  FrameOutcome raise_out(Flow flow);
  bool unwind(Flow flow);
  Ref account_for_caught(PyObject* exception, Flow flow);
  void add_traceback();
  static bool closing_runs_code(PyObject* generator);
  void release_dropped();
  void end_variables();
  void close_dropped(PyObject* generator);

  bool redo_ = false;           // raised: by running the instruction again
  bool never_started_ = false;  // raised: recursion too deep
  size_t mark_ = 0;             // what this frame lets go of is noted behind it
  const ExpectedBreaks* expected_ = nullptr;
  bool has_met_expected_ = false;
  size_t ops_seen_ = 0;  // of the log, after the last instruction
  std::unordered_set<int> between_checkpoints_;
};

}  // namespace smelt::bytecode
