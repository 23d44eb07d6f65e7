// A frame of CPython's while it is interpreted: its slots and its stack with what the trace knows of
// each value, and the instruction that is being run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "capture/bytecode/cpython/frame.h"
#include "capture/bytecode/values/operations.h"

namespace smelt::bytecode {

class FrameState {
 public:
  FrameState(const FrameState&) = delete;
  FrameState& operator=(const FrameState&) = delete;

  // The instruction that was run last.
  Place place() const { return {start_, turns_}; }
  PyObject* value() const { return value_; }
  Ref value_ref() const { return value_ref_; }
  // How the trace knows the function, for its closure.
  void set_function_ref(Ref ref) { function_ref_ = ref; }
  // Kept for a generator between two resumptions.
  std::vector<Ref> take_refs() { return std::move(refs_); }

 protected:
  enum class Flow : uint8_t {
    next,
    error,      // an error is set
    reraise,    // likewise, but the traceback has this frame already
    escape,     // as reraise, there being no handler; the instruction has done nothing yet
    returned,   // value_
    yielded,    // value_ref_
    redo,       // CPython is to run this instruction, which has done nothing yet
    generator,  // likewise
  };
  struct Handler {
    int target, depth;
    bool push_lasti;
  };

  FrameState(PyThreadState* thread, Frame frame, Trace* trace, bool is_root, std::vector<Ref> refs);
  ~FrameState() { Py_XDECREF(value_); }

  // The trace while it goes on, else nullptr.
  Trace* live() const { return trace_ != nullptr && trace_->active() ? trace_ : nullptr; }
  void stop(BreakReason reason, std::string detail);
  PyObject* name(int index) const { return PyTuple_GET_ITEM(code_->co_names, index); }
  PyObject* constant(int index) const { return PyTuple_GET_ITEM(code_->co_consts, index); }
  PyObject* local_name(int index) const;
  // In the innermost context; nullptr if none is.
  PyObject* handled_exception() const {
    PyObject* value = thread_->exc_info->exc_value;
    return value == Py_None ? nullptr : value;
  }

  // -- the stack; peek(1) is its top
  Value peek(int from_top) const { return at(locals_ + depth_ - from_top); }
  Value at(int slot) const { return {slots_[slot], refs_.empty() ? 0 : refs_[slot]}; }
  std::vector<Value> top_values(int count) const;
  void set(int slot, PyObject* object, Ref ref);  // steals; says nothing about what was there
  void push(PyObject* object, Ref ref);           // steals
  void push(Result result) { push(result.object, result.ref); }
  PyObject* pop();  // the caller owns it
  void drop(int count);
  void let_go(PyObject* object);  // steals
  void let_go_of_variable(PyObject* object);
  // Replaces `inputs` values by the result; an error leaves them to be dropped by the handler.
  Flow replace(int inputs, Result result);
  Flow done(int inputs, bool ok);
  Flow jump(int by);

  // Of the code that the frame runs, and of any.
  std::optional<Handler> handler_at(int unit) const;
  static std::optional<Handler> handler_in(PyCodeObject* code, int unit);

  PyThreadState* thread_;
  Frame frame_;
  Trace* trace_;  // nullptr: plain
  const bool is_root_;
  PyCodeObject* code_;
  const uint8_t* bytes_ = nullptr;  // opcode, argument pairs
  int units_ = 0;
  PyObject** slots_;
  const int locals_;
  std::vector<Ref> refs_;
  Ref function_ref_ = 0;

  int depth_ = 0;    // values on the stack
  int start_ = 0;    // of the current instruction, with all that belongs to it
  int running_ = 0;  // its last unit but for caches
  int lasti_ = 0;    // the unit that a handler is told
  int next_ = 0;
  PyObject* keyword_names_ = nullptr;  // borrowed; between KW_NAMES and CALL
  int turns_ = 0;                      // of loops, that were begun anew
  Object handled_at_start_;            // root: the exception that was being handled
  std::string raised_type_;
  PyObject* value_ = nullptr;
  Ref value_ref_ = 0;
};

// A PyCodeObject's instructions without specialisation, kept for as long as the code lives.
struct Instructions {
  const uint8_t* bytes = nullptr;  // opcode, argument pairs
  int units = 0;
};
Instructions instructions_of(PyCodeObject* code);

}  // namespace smelt::bytecode
