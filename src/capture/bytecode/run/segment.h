// Compiled pieces of a function. A segment runs from one instruction of a frame to the next graph
// break or the return; each frame that a compiled function runs has a table of them.
#pragma once

#include <compare>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "capture/bytecode/cpython/gil_shared.h"
#include "capture/bytecode/guards/guard_program.h"
#include "capture/bytecode/run/wished_sizes.h"

namespace smelt::bytecode {

// One traced way through the code from an offset on. Whoever runs it owns it meanwhile: the code
// that it runs may drop it from its table.
class Segment : public GilCounted {
 public:
  explicit Segment(TraceResult result);

  enum class Outcome : uint8_t {
    miss,    // guards do not hold
    value,   // the function returns `value`
    resume,  // the frame's slots were set; go on at exit().offset with exit().depth values on the
             // stack
    error,   // a Python error is set; the frame is untouched where `program` failed cleanly
    mispredicted,  // the program does not hold for what is in the tensors: as a miss
    retry,         // the program failed and changed nothing: let CPython run the frame from here
  };
  // `slots`: the frame's localsplus, of which `count` are in use (what is behind is not read); on
  // resume those of exit().slots are set and the others unset. `function`: that the frame runs.
  Outcome run(PyObject** slots, size_t count, PyObject* function, PyObject** value);
  // Whether it would be run for these, if cached functions give what they gave last: asking them
  // would count as a call.
  bool holds(PyObject** slots, size_t count, PyObject* function);
  // It would, but for sizes of tensors, or for what is in them.
  bool holds_for_other_sizes(PyObject* const* slots, size_t count) const;

  const Exit& exit() const { return result_.exit; }
  const TraceResult& result() const { return result_; }
  GuardProgram& guards() { return guards_; }
  uint64_t hits = 0;
  bool guesses = false;                // about what is in tensors
  std::optional<Break> ends_at;        // the break in front of which it ends
  std::string ends;                    // that, or "returns", for reports
  const PyTypeObject* kind = nullptr;  // of the frame's first argument, which may be gone by now
  bool ends_inside = false;   // that is in a callee, and it has not been there a second time yet
  bool is_tentative = false;  // it has no kernels yet (budget.h)
  bool is_first = false;      // there was none at its place before
  bool is_sized = false;      // it is for more than one size
  int64_t run_ns = 0;         // of a tentative one: that its runs have taken

  // Why it is not run for these: "x.shape[0]: was 4, is 5", "grad mode was on, is off". `code` names
  // the slots. Empty: all that can be seen before the program runs is as it was.
  std::string why_not(PyObject* const* slots, size_t count, PyObject* code) const;
  // The same variables have values.
  bool has_same_slots(PyObject* const* slots, size_t count) const;

  int traverse(visitproc visit, void* arg) const;
  void clear();

 private:
  const Reading* changed_reading() const;  // nullptr: all are as they were
  std::string state_difference() const;    // "get_num_threads() gave 2, gives something else"
  // Asks the cached functions again. miss: one raised an error; retry: one gives something else.
  Outcome remember() const;
  bool check_guards(PyObject** slots, size_t count, PyObject* function, PyObject** registers);
  TraceResult result_;  // without nodes and guards: the guard program has what it needs of them
  GuardProgram guards_;
  // Registers: the guards' wanted nodes, the program's outputs, the steps' results.
  std::vector<int32_t> register_of_;  // by Ref; -1: none
  size_t registers_ = 0;
  std::vector<int32_t> input_registers_;  // of the program: its tensors, then its scalars
  bool inputs_come_first_ = true;         // in the first registers, in order
  int32_t returned_ = -1;                 // there are no steps, and this register is returned
  size_t most_operands_ = 0;              // of a step

  void give_out_registers();
  PyObject* load(const Operand& operand, PyObject* const* registers) const;
  bool scalars_fit(PyObject* const* registers) const;
  bool run_program(PyObject** registers, TensorProgram::Failure* failure) const;
  // An error of the program would have to go to a handler in the middle of what it does.
  bool is_left_to_python() const;
  Outcome after_failure(const TensorProgram::Failure& failure, PyObject** registers,
                        PyObject** operands) const;
  // `operands`: room for those of any step.
  bool run_step(const Step& step, PyObject** registers, PyObject** operands) const;
  Outcome leave(PyObject** slots, size_t count, PyObject** registers, PyObject** value) const;
  void set_slots(PyObject** slots, size_t count, PyObject** registers) const;
};

using SegmentList = std::vector<GilShared<Segment>>;

// The segments of one code object. A frame that uses them owns them, and reset() puts others in
// their place. Nothing is erased from the maps, so that what is found in one stays where it is; a
// list may be changed by any code that runs.
struct CodeSegments : GilCounted {
  // By offset (in code units), most recently used first.
  std::map<int, SegmentList> at;
  // Paths of numbers that were part of a segment and turned out to change: run-time scalars in the
  // next one.
  std::unordered_set<std::string> changing;
  // Sizes of tensors that turned out to change: they vary in the next one. By offset: how many
  // segments there are with such sizes, and why there are no more.
  ChangedDims changed_dims;
  std::map<int, int> sized;
  std::map<int, bool>
      plain;  // nothing to gain from tracing at that offset: CPython runs the instruction
  std::map<int, int>
      wrong_guesses;  // about what is in tensors, by offset; less with each right one
  ExpectedBreaks expected;
  // Offsets of segments that went since their break had gone, and (~) of calls in which none was
  // found any more.
  std::unordered_set<int> retried;
  std::map<int, int> opened;  // segments that hold for one position of an iterator, by offset
  // The limit was hit for frames with a first argument of these types: there are no new segments
  // for them. How many in a row found none that fits.
  std::unordered_map<const PyTypeObject*, int> given_up;
};

}  // namespace smelt::bytecode
