// The loop. Between two instructions everything that matters is in the frame (slots) and in depth_
// and next_; there is no block stack. Who changes this should keep in mind:
//
//  - The garbage collector must not see the stack while we work on it (hide_stack), and CPython
//    must find it complete whenever we leave the loop (pause, raise_out).
//  - An instruction's start is the first of its EXTENDED_ARGs, and for a call its KW_NAMES: what
//    that one says is not in the frame, so neither a checkpoint nor a hand-over may lie in between.
//  - The last instruction of a frame - a return, a yield, an error that leaves it - is done by
//    CPython, which is sent back to it (complete). Only it knows how to end a frame in each
//    version, and it adds the traceback.
#include "capture/bytecode/interpret/interpreter.h"

#include <frameobject.h>
#include <opcode.h>

#include <algorithm>
#include <exception>

#include "base/error.h"
#include "capture/bytecode/cpython/libraries.h"
#include "capture/bytecode/trace/boundary.h"
#include "capture/bytecode/trace/tracing.h"

namespace smelt::bytecode {
namespace {

constexpr size_t kMostBytecodes = 3'000'000;
constexpr size_t kMostOps = 100'000;

// Then it has more to it than what it was made from.
bool has_been_raised(PyObject* exception) {
  const auto* base = reinterpret_cast<PyBaseExceptionObject*>(exception);
  return base->traceback != nullptr || base->context != nullptr || base->cause != nullptr;
}

// Adds the frame to those that the trace follows.
class FollowedFrame {
 public:
  FollowedFrame(Trace* trace, Frame frame) : tracing_(trace ? active_tracing() : nullptr) {
    if (tracing_ != nullptr && !keep_account(trace, [&] { tracing_->frames.push_back(frame); }))
      tracing_ = nullptr;
  }
  ~FollowedFrame() {
    if (tracing_ != nullptr) tracing_->frames.pop_back();
  }
  FollowedFrame(const FollowedFrame&) = delete;
  FollowedFrame& operator=(const FollowedFrame&) = delete;

 private:
  Tracing* tracing_;
};

}  // namespace

FrameOutcome Interpreter::run(bool throwing, int limit) {
  const FrameLink link(thread_, frame_);
  if (!link.ok()) {
    never_started_ = true;
    return FrameOutcome::raised;
  }
  const FollowedFrame followed(live(), frame_);
  depth_ = frame_.depth();
  next_ = frame_.next_offset();
  if (trace_ != nullptr) mark_ = trace_->let_go.mark();
  frame_.hide_stack();
  Flow flow = Flow::next;
  if (throwing) {
    start_ = running_ = lasti_ = next_ - 1;
    flow = Flow::error;
  } else if (!is_root_ && next_ == 0 && live() != nullptr) {
    flow = guarded(&Interpreter::call_module);
  }
  for (int count = 0;;) {
    switch (flow) {
      case Flow::next:
        if (limit != 0 && count++ == limit) return pause(FrameOutcome::stopped, next_);
        if (expected_ != nullptr) keep_account(trace_, [this] { end_if_expected(); });
        if (trace_ != nullptr && !trace_->active()) return pause(FrameOutcome::stopped, next_);
        flow = guarded(&Interpreter::run_instruction);
        break;
      case Flow::error:
      case Flow::reraise:
        if (!unwind(flow)) return raise_out(flow);
        flow = Flow::next;
        break;
      case Flow::escape: return raise_out(flow);
      case Flow::returned:
        keep_account(trace_, [this] { end_variables(); });
        return pause(FrameOutcome::returned, next_);
      case Flow::yielded: return pause(FrameOutcome::yielded, start_);
      case Flow::redo: return pause(FrameOutcome::unsupported, start_);
      case Flow::generator: return pause(FrameOutcome::generator, start_);
    }
  }
}

// Gives the frame back as CPython expects it.
FrameOutcome Interpreter::pause(FrameOutcome outcome, int offset) {
  frame_.set_depth(depth_);
  frame_.set_next_offset(offset);
  return outcome;
}

FrameOutcome Interpreter::raise_out(Flow flow) {
  redo_ = flow == Flow::escape;
  if (is_root_ && live() != nullptr) {
    const Object error = take_error();
    keep_account(trace_, [&] {
      if (raised_type_.empty() && error) raised_type_ = Py_TYPE(error.get())->tp_name;
      stop(BreakReason::exception, raised_type_);
    });
    restore_error(error);
  }
  frame_.set_depth(depth_);
  if (redo_)
    frame_.set_next_offset(start_);
  else
    frame_.set_running(running_);
  return FrameOutcome::raised;
}

PyObject* Interpreter::complete(FrameOutcome outcome) {
  switch (outcome) {
    case FrameOutcome::returned: return leave(thread_, frame_, std::exchange(value_, nullptr));
    case FrameOutcome::raised:
      if (never_started_) return leave(thread_, frame_, nullptr);
      return run_in_cpython(thread_, frame_, !redo_);
    case FrameOutcome::yielded:
    case FrameOutcome::stopped:
    case FrameOutcome::unsupported:
    case FrameOutcome::generator: break;
  }
  return run_in_cpython(thread_, frame_, false);
}

// C++ exceptions must not pass CPython's frames on the C stack (boundary.h).
Interpreter::Flow Interpreter::guarded(Flow (Interpreter::*part)()) {
  const uint64_t acts = acts_so_far;
  const int depth = depth_, start = next_;
  try {
    return (this->*part)();
  } catch (const std::exception& problem) {
    if (trace_ != nullptr) trace_->fail(problem);
    keyword_names_ = nullptr;
    if (acts == acts_so_far && depth == depth_) {
      start_ = start;
      PyErr_Clear();
      return Flow::redo;
    }
    if (PyErr_Occurred() == nullptr) PyErr_Format(PyExc_RuntimeError, "smelt: %s", problem.what());
    return Flow::error;
  }
}

Interpreter::Flow Interpreter::run_instruction() {
  start_ = next_;
  checkpoint();
  int unit = next_, opcode = 0, argument = 0, extended = 0;
  for (;;) {
    opcode = bytes_[2 * unit];
    argument = bytes_[2 * unit + 1] | extended << 8;
    ++unit;
    if (opcode == EXTENDED_ARG) {
      extended = argument;
      continue;
    }
    extended = 0;
    running_ = unit - 1;
    while (unit < units_ && bytes_[2 * unit] == CACHE) ++unit;
    if (!take_prefix(opcode, argument)) break;
  }
  next_ = unit;
  lasti_ = running_;
  frame_.set_running(running_);
  const Flow flow = execute(opcode, argument);
  if (trace_ != nullptr) {
    trace_->check_log();
    note_handlers();
    check_length();
    release_dropped();
  }
  return flow;
}

// What the program has dropped goes now, as it would without a trace: a generator that was left,
// and objects that only the trace has.
void Interpreter::release_dropped() {
  if (trace_->has_failed()) return;  // it may have been given away in parts
  if (!trace_->has_transients() && !trace_->let_go.has_any(mark_)) return;
  const SavedError error;
  while (Object dropped = trace_->take_dropped(mark_)) {
    if (PyGen_CheckExact(dropped.get())) close_dropped(dropped.get());
    if (Tracing* tracing = current_tracing()) tracing->trace->generators.erase(dropped.get());
    // A finaliser is code that the program runs. A generator is closed by being dropped, and there
    // is no code in it for that.
    const Unfollowed unfollowed(PyGen_CheckExact(dropped.get()) ? trace_ : nullptr, true,
                                Trust::everybody);
    dropped = Object();
  }
}

// CPython clears the root's variables behind the trace. If that closes a generator which was left,
// it is done here, in the same order, so that what the generator does then is part of the trace.
void Interpreter::end_variables() {
  const Tracing* tracing = current_tracing();
  if (!is_root_ || live() == nullptr || tracing == nullptr || frame_.is_held()) return;
  if (std::ranges::none_of(tracing->trace->generators,
                           [](const auto& known) { return closing_runs_code(known.first); }))
    return;
  for (int i = 0; i < locals_ && live() != nullptr; ++i) {
    PyObject* variable = slots_[i];
    set(i, nullptr, 0);
    let_go(variable);
    release_dropped();
  }
}

// What it does then, in a `finally` or a `with`, is part of the trace.
void Interpreter::close_dropped(PyObject* generator) {
  if (live() == nullptr || !closing_runs_code(generator)) return;
  const Transparent transparent(live(), false);
  const Object closed = Object::steal(PyObject_CallMethod(generator, "close", nullptr));
  if (closed) return;
  stop(BreakReason::generator, "one that raises when it is dropped");
  PyErr_WriteUnraisable(generator);
}

// A segment can end in front of this instruction unless an exception is being handled that was not
// when the trace began, or one lies about that has been raised: a cached call could not put that
// back.
void Interpreter::checkpoint() {
  if (!is_root_ || live() == nullptr) return;
  const auto count = static_cast<size_t>(locals_ + depth_);
  const auto was_raised = [this](PyObject* object) {
    return object != nullptr && PyExceptionInstance_Check(object) && has_been_raised(object) &&
           trace_->is_born(object);
  };
  if (handled_exception() == handled_at_start_.get() &&
      std::none_of(slots_, slots_ + count, was_raised)) {
    trace_->checkpoint(start_, depth_, {slots_, count}, {refs_.data(), count});
  }
  if (trace_->exit_offset() == start_)
    between_checkpoints_.clear();
  else
    between_checkpoints_.insert(start_);
}

// In front of a call in which an earlier trace has stopped.
void Interpreter::end_if_expected() {
  const auto found = expected_->find({next_, turns_});
  if (found == expected_->end() || !found->second || trace_->bytecodes == 0) return;
  start_ = next_;
  checkpoint();
  if (live() == nullptr || trace_->exit_offset() != start_) return;
  trace_->stop_at(*found->second);
  has_met_expected_ = true;
}

// An error of the ops of this instruction would go to a handler of this frame.
void Interpreter::note_handlers() {
  if (live() == nullptr) return;
  const size_t ops = trace_->log().position();
  if (std::exchange(ops_seen_, ops) == ops || trace_->catches) return;
  const std::optional<Handler> handler = handler_at(running_);
  if (!handler) return;
  trace_->handles = true;
  // `finally` and `with` begin by what they do in any case, and raise the error again. In PyTorch's
  // own code that is to put back what the error leaves as it was anyway.
  trace_->catches =
      !is_of_package(frame_.globals(), "torch") && !is_of_package(frame_.globals(), "smelt");
  for (int unit = handler->target; unit < units_; ++unit) {
    const int opcode = bytes_[2 * unit];
    if (opcode == RERAISE) break;
    trace_->catches = trace_->catches || opcode == CHECK_EXC_MATCH || opcode == POP_EXCEPT;
  }
}

void Interpreter::check_length() {
  if (++trace_->bytecodes > kMostBytecodes) {
    stop(BreakReason::too_long, "3,000,000 instructions");
  } else if (trace_->bytecodes % 1024 == 0 && trace_->active() &&
             trace_->log().position() > kMostOps) {
    stop(BreakReason::too_long, "100,000 tensor ops");
  }
}

// -- exceptions

// Whether to close a generator is to run code: its own `finally`, or that of what it delegates to.
bool Interpreter::closing_runs_code(PyObject* generator) {
  const std::optional<Frame> frame = suspended_frame(generator);
  if (!frame) return false;
  std::optional<Handler> handler = handler_in(frame->code(), frame->next_offset() - 1);
#ifdef CALL_INTRINSIC_1
  // 3.12: a delegation lies in a block that hands on what was thrown, and all of a generator in one
  // that turns StopIteration into an error.
  const Instructions instructions = instructions_of(frame->code());
  while (handler && instructions.bytes[2 * handler->target] == CLEANUP_THROW)
    handler = handler_in(frame->code(), handler->target);
  if (handler && instructions.bytes[2 * handler->target] == CALL_INTRINSIC_1) handler.reset();
#endif
  if (handler) return true;
  const Object inner = Object::steal(PyObject_GetAttrString(generator, "gi_yieldfrom"));
  if (!inner || inner.get() == Py_None) return false;
  if (PyGen_CheckExact(inner.get())) return closing_runs_code(inner.get());
  return (Py_TYPE(inner.get())->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0 ||
         PyObject_HasAttrString(inner.get(), "close") != 0;
}

// Goes to the handler of the error that is set; false if the frame has none. A traceback entry for
// an error that leaves the frame is left to CPython.
bool Interpreter::unwind(Flow flow) {
  const std::optional<Handler> handler = handler_at(running_);
  if (!handler) return false;
  if (flow == Flow::error) add_traceback();
  drop(depth_ - handler->depth);
  Object exception = take_error();
  if (handler->push_lasti) push(PyLong_FromLong(lasti_), 0);
  Ref ref = 0;
  keep_account(trace_, [&] { ref = account_for_caught(exception.get(), flow); });
  push(exception.release(), ref);
  next_ = handler->target;
  keyword_names_ = nullptr;
  return true;
}

// The ref of an exception that a handler gets.
Ref Interpreter::account_for_caught(PyObject* exception, Flow flow) {
  if (live() == nullptr) return 0;
  Ref ref = live()->ref_of(exception);
  if (ref == 0) {  // made by C out of what is known: it can be looked at, but not made again
    live()->transient(exception);
    ref = live()->ref_of(exception);
  }
  // Raising it has changed it: traceback, context, cause. With one that the trace made, no segment
  // ends (checkpoint).
  if (flow == Flow::error && ref != 0 && !live()->is_born(exception))
    stop(BreakReason::handler, "");
  return ref;
}

void Interpreter::add_traceback() {
  if (running_ < frame_.first_visible()) return;
  Object frame = Object::steal(reinterpret_cast<PyObject*>(PyThreadState_GetFrame(thread_)));
  if (frame) PyTraceBack_Here(reinterpret_cast<PyFrameObject*>(frame.get()));
}

// -- the stack

void Interpreter::let_go_of_frame() {
  if (live() == nullptr) return;
  for (int i = 0; i < locals_ + depth_; ++i) trace_->let_go.note(slots_[i]);
}

}  // namespace smelt::bytecode
