// Compiled pieces of a function. A segment runs from one instruction of a frame to the next graph
// break or the return; each frame that a compiled function runs has a table of them.
#pragma once

#include <atomic>
#include <compare>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "capture/bytecode/guard_program.h"

namespace smelt::bytecode {

// One traced way through the code from an offset on.
class Segment {
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
  // resume those of exit().slots are set and the others unset.
  Outcome run(PyObject** slots, size_t count, PyObject** value);

  const Exit& exit() const { return result_.exit; }
  const TraceResult& result() const { return result_; }
  GuardProgram& guards() { return guards_; }
  uint64_t hits = 0;
  bool guesses = false;                // about what is in tensors
  std::optional<Break> ends_at;        // the break in front of which it ends
  const PyTypeObject* kind = nullptr;  // of the frame's first argument, which may be gone by now
  bool ends_inside = false;  // that is in a callee, and it has not been there a second time yet

  // "torch's get_num_threads gives something else"; empty: all state that was looked at is the
  // same.
  std::string state_difference() const;

  int traverse(visitproc visit, void* arg) const;
  void clear();

 private:
  bool has_same_slots(PyObject* const* slots, size_t count) const;
  const Reading* changed_reading() const;  // nullptr: all are as they were
  // Asks the cached functions again. miss: one raised an error; retry: one gives something else.
  Outcome remember() const;
  bool check_guards(PyObject** slots, size_t count, PyObject** registers);
  TraceResult result_;  // without nodes and guards: the guard program has what it needs of them
  GuardProgram guards_;
  // Registers: the guards' wanted nodes, the program's outputs, the steps' results.
  std::vector<int32_t> register_of_;  // by Ref; -1: none
  size_t registers_ = 0;
  std::vector<int32_t> input_registers_;  // of the program: its tensors, then its scalars
  bool inputs_come_first_ = true;         // in the first registers, in order
  int32_t returned_ = -1;                 // there are no steps, and this register is returned

  void give_out_registers();
  PyObject* load(const Operand& operand, PyObject* const* registers) const;
  bool scalars_fit(PyObject* const* registers) const;
  bool run_program(PyObject** registers) const;
  bool run_step(const Step& step, PyObject** registers) const;
  Outcome leave(PyObject** slots, size_t count, PyObject* const* registers, PyObject** value) const;
  void set_slots(PyObject** slots, size_t count, PyObject* const* registers) const;
};

// A place in a run of a frame from its start on.
struct Place {
  int offset = 0;
  int turns = 0;  // how often loops of the frame were begun anew before
  auto operator<=>(const Place&) const = default;
};
// Calls in which traces of a frame further out have stopped, somewhere inside: as a root this
// frame's next trace ends in front of them. Nothing: it turned out otherwise.
using ExpectedBreaks = std::map<Place, std::optional<Break>>;

// The segments of one code object.
struct CodeSegments {
  // By offset (in code units), most recently used first.
  std::map<int, std::vector<std::shared_ptr<Segment>>> at;
  std::map<int, int> misses;  // recompiles by offset
  // Paths of numbers that were part of a segment and turned out to change: run-time scalars in the
  // next one.
  std::unordered_set<std::string> changing;
  std::map<int, bool>
      plain;  // nothing to gain from tracing at that offset: CPython runs the instruction
  std::map<int, int>
      wrong_guesses;  // about what is in tensors, by offset; less with each right one
  ExpectedBreaks expected;
  std::unordered_set<int> retried;  // offsets of segments that went since their break had gone
  std::map<int, int> opened;        // segments that hold for one position of an iterator, by offset
  // The limit was hit for frames with a first argument of these types: there are no new segments
  // for them. How many in a row found none that fits.
  std::unordered_map<const PyTypeObject*, int> given_up;
};

}  // namespace smelt::bytecode
