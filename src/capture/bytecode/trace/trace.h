// The account of one run through a piece of code. The interpreter executes everything for real and
// tells the trace what it did; the trace keeps for each object where it came from, which conditions
// made the run go this way (guards), which tensor ops there were (the log), and what was done to
// Python objects (steps). That makes a Segment.
//
// Nothing is undone when a trace stops: execution is real. What was recorded since the root's
// current instruction began is dropped; the segment ends in front of it.
// What is kept about objects:
//  - atoms (None, int, float, str, ...) are known by value. One that was read from outside has a
//    Ref and no guard as long as nothing depends on it; use() adds the guard. One stored in an
//    object that the trace made is used; numbers in tuples, lists and dicts stay lazy.
//  - fixed objects (types, functions, modules, dtypes) are known by identity, likewise lazily.
//  - everything else is tracked by identity, in a table from object to Ref: it existed before
//    (`outside`: a path leads to it), or a step or tensor op made it (`born`).
//  - an object that is none of these is unknown: stop().
//
// Four verbs say how much a run comes to depend on, from least to most:
//   settle   a number that stayed lazy in a container is guarded by value: C code may look at it
//   use      the run depends on all of a value: atoms by value, fixed objects by identity, tensors
//            by metadata, containers by their elements
//   own      all that is in a container is guarded, so that it can be changed and read freely
//   touch    C code will walk through an object: all that it can reach is used (builtin_call.h)
// To read is less: it says where an object was found, and nothing about what it is.
//
// A trace is made of layers, each a class with a header of its own that knows those below it:
//   trace_objects.h     which objects are known, and as what
//   trace_guards.h      conditions on them
//   trace_reads.h       where objects were found
//   trace_uses.h        settle, use, own
//   trace_numbers.h     numbers that are computed again
//   trace_sizes.h       sizes of tensors that vary
//   trace_steps.h       what was made and changed
//   trace_lifetimes.h   iterators, and what the program has dropped
// This one begins a trace, says where it can end, and makes the data of a segment.
#pragma once

#include <optional>
#include <span>

#include "capture/bytecode/account/state_seen.h"
#include "capture/bytecode/trace/trace_lifetimes.h"

namespace smelt::bytecode {

class Follower;

class Trace final : public TraceLifetimes {
 public:
  // `slots`: the root frame's slots at the start.
  Trace(PyObject* const* slots, size_t count);
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  // The root's state in front of an instruction: where the trace can end. `good`: all live objects
  // can be made again.
  void checkpoint(int offset, int depth, std::span<PyObject* const> slots,
                  std::span<const Ref> refs);

  // -- gradients
  // tensor.grad is what the trace has made it.
  bool has_set_grad(PyObject* tensor) const {
    return backward.grads.contains(log_->value_of(tensor));
  }
  void set_grad(Value tensor, Value grad);        // it has been set
  void add_grads(std::span<const Value> leaves);  // a backward pass has added to theirs
  void note_grad(Value tensor);

  // -- the end
  // With a value returned by the root. An error of a user's back end is left set. Nothing if no
  // progress was made, or if it can't be done (stopped() then says why).
  using Request = SegmentRequest;
  std::optional<TraceResult> finish_return(Value value, const Request& request);
  // In front of the checkpoint's instruction.
  std::optional<TraceResult> finish_break(const Request& request);
  int exit_offset() const { return checkpoint_.offset; }
  // Lets go of all objects but those that running code asked to hold(); the segment is made.
  void release();

  Follower* follower = nullptr;  // who follows calls; set by who traces
  size_t bytecodes = 0;          // run so far, for statistics and limits
  StateSeen state;
  bool handles = false, catches = false;  // as in TraceResult

 private:
  Position position() const;
  bool is_in_between() const;
  std::optional<TraceResult> finish(Exit exit, const Position& position, const Request& request);
  void drop_unneeded_steps(TraceResult& result) const;
  void add_distinctness(TraceResult& result) const;
  bool needs_raised_exception(const Exit& exit) const;
  bool make_program(TraceResult& result, const Position& position, const Request& request);

  Ambient ambient_;
  Checkpoint checkpoint_;
};

}  // namespace smelt::bytecode
