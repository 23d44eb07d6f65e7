// Runs a frame of CPython's in place, instruction by instruction, and tells the trace what happens.
// One object per frame activation. The handlers (ops_*.cpp) are shared by all versions of CPython;
// opcodes_3xx.cpp maps a version's instructions to them.
#pragma once

#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "capture/bytecode/cpython/frame.h"
#include "capture/bytecode/values/operations.h"

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

class Interpreter {
 public:
  // `refs`: one per slot (locals and stack size), those in use filled in; empty without a trace.
  Interpreter(PyThreadState* thread, Frame frame, Trace* trace, bool is_root,
              std::vector<Ref> refs);
  ~Interpreter() { Py_XDECREF(value_); }
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  // From frame.next_offset() on; with `throwing` the error that is set is raised there first.
  // `limit`: so many instructions at most, 0 for no limit. A trace that stops lets the current
  // instruction finish. Throws nothing.
  FrameOutcome run(bool throwing, int limit = 0);

  // What is left to be done for an outcome, by CPython's eval loop: return from the frame, yield,
  // raise the error in the caller (the frame gets into the traceback only here), or go on with it.
  PyObject* complete(FrameOutcome outcome);

  // How the trace knows the function, for its closure.
  void set_function_ref(Ref ref) { function_ref_ = ref; }

  // The instruction that was run last.
  Place place() const { return {start_, turns_}; }
  // The trace of the root, which is at its start, shall end in front of these if it can.
  void expect_breaks(const ExpectedBreaks* breaks) { expected_ = breaks; }
  bool has_met_expected() const { return has_met_expected_; }  // it has ended there

  PyObject* value() const { return value_; }
  Ref value_ref() const { return value_ref_; }
  // The root's instructions since the last one in front of which the trace could have ended.
  const std::unordered_set<int>& between_checkpoints() const { return between_checkpoints_; }
  // CPython is about to clear the frame.
  void let_go_of_frame();
  // Kept for a generator between two resumptions.
  std::vector<Ref> take_refs() { return std::move(refs_); }

  // Whether there is code for this version of CPython's instructions.
  static bool supports_this_python();

 private:
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

  // opcodes_3xx.cpp. Parts of an instruction that come before it (KW_NAMES): true if it was one.
  bool take_prefix(int opcode, int argument);
  Flow execute(int opcode, int argument);

  // -- interpreter.cpp
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
  std::optional<Handler> handler_at(int unit) const;
  static std::optional<Handler> handler_in(PyCodeObject* code, int unit);
  static bool closing_runs_code(PyObject* generator);
  void release_dropped();
  void close_dropped(PyObject* generator);

  // The trace while it goes on, else nullptr.
  Trace* live() const { return trace_ != nullptr && trace_->active() ? trace_ : nullptr; }
  void stop(BreakReason reason, std::string detail);
  PyObject* name(int index) const { return PyTuple_GET_ITEM(code_->co_names, index); }
  PyObject* constant(int index) const { return PyTuple_GET_ITEM(code_->co_consts, index); }
  PyObject* local_name(int index) const;

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

  // -- module_calls.cpp
  Flow call_module();
  bool is_scripting();

  // -- ops_names.cpp
  Flow load_const(int index);
  Flow load_fast(int index);
  Flow load_fast_and_clear(int index);
  Flow store_fast(int index);
  Flow delete_fast(int index);
  Flow load_global(int index, bool push_null);
  Flow store_global(int index);
  Flow delete_global(int index);
  Flow load_name(int index);
  Flow store_name(int index);
  Flow delete_name(int index);
  Flow load_locals();
  Flow load_from_dict_or_globals(int index);
  Flow load_from_dict_or_cell(PyObject* dict, int slot, int inputs);
  Flow load_class_cell(int slot);
  Flow make_cell(int slot);
  Flow copy_free_vars(int count);
  Flow load_closure(int slot);
  Flow load_cell(int slot);
  Flow store_cell(int slot);
  Flow delete_cell(int slot);
  bool find_global(PyObject* key, Result* result);
  bool find_in_namespace(PyObject* dict, PyObject* key, PyObject** found);
  Flow unbound(int slot);
  Flow undefined(PyObject* key);

  // -- ops_attributes.cpp
  Flow load_attribute(int index);
  Flow load_method(int index);
  Flow load_super_attribute(int index, bool as_method, bool two_arguments);
  Flow store_attribute(int index);
  Flow delete_attribute(int index);
  Flow import_name(int index);
  Flow import_from(int index);
  Flow load_build_class();
  Ref account_for_import(PyObject* module, PyObject* key, PyObject* from_list, long level);

  // -- ops_values.cpp
  Flow binary_op(int op);
  Flow compare_op(int op);
  Flow unary_op(ScalarOp op);
  Flow unary_not();
  Flow is_op(bool negate);
  Flow contains_op(bool negate);
  Flow subscript();
  Flow store_subscript();
  Flow delete_subscript();
  Flow binary_slice();
  Flow store_slice();
  Flow build(Result (*operation)(Trace*, std::span<const Value>), int inputs);
  Flow build_const_key_map(int count);
  // LIST_APPEND and the like: the container lies `distance` below its `inputs`.
  Flow extend(bool (*operation)(Trace*, Value, Value), int distance);
  Flow map_add(int distance);
  Flow merge_keywords(int distance);
  Flow to_tuple();
  Flow format_value(int flags);
  Flow unpack_sequence(int count);
  Flow unpack_with_rest(int before, int after);
  bool take_items(Value iterable, int count, bool with_rest, std::vector<Result>& items);

  // -- ops_control.cpp
  Flow copy(int from_top);
  Flow swap(int from_top);
  Flow jump_backward(int by);
  bool raises_at(int unit) const;
  std::optional<bool> passing_truth(bool condition, int by) const;
  Flow jump_if(bool condition, int by);
  Flow jump_if_or_pop(bool condition, int by);
  Flow jump_if_none(bool condition, int by);
  Flow get_iterator();
  Flow get_yield_from_iterator();
  Flow for_iter(int by);
  Flow send(int by, bool keep_receiver);
  Flow end_send();
  Flow return_value();
  Flow yield_value();
  Flow unsupported(const char* instruction);

  // -- ops_match.cpp
  Flow get_length();
  Flow match_flag(unsigned long flag);
  Flow match_keys();
  Flow match_class(int positional);
  bool match_attributes(Value subject, Value type, int positional, PyObject* keywords,
                        bool* matched, std::vector<Result>& found);
  bool match_attribute(Value subject, Value type, PyObject* attribute, PyObject* seen,
                       bool* matched, std::vector<Result>& found);
  int is_instance(Value subject, Value type);

  // -- ops_calls.cpp
  Flow call_op(int count);
  Flow call_with_unpacking(bool has_keywords);
  // callee(self, *positional, **keywords); without a self, if that is empty.
  Result call_unpacked(Value callee, Value self, Value positional, Value keywords);
  Flow make_function(int flags);
  Flow before_with();
  bool special_method(Value object, PyObject* key, Result* bound);
  Flow with_except_start();

  // -- ops_exceptions.cpp
  Flow push_exc_info();
  Flow pop_except();
  Flow check_exception_match();
  Flow raise(int count);
  Flow reraise(int distance);
  Flow cleanup_throw();
  Flow stop_iteration_error();
  Flow call_intrinsic(int intrinsic);  // opcodes_312.cpp
  Result exception_from(Value value, const char* complaint);

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
  Object handled_at_start_;            // root: the exception that was being handled
  bool redo_ = false;                  // raised: by running the instruction again
  bool never_started_ = false;         // raised: recursion too deep
  int turns_ = 0;                      // of loops, that were begun anew
  size_t mark_ = 0;                    // what this frame lets go of is noted behind it
  const ExpectedBreaks* expected_ = nullptr;
  bool has_met_expected_ = false;
  size_t ops_seen_ = 0;  // of the log, after the last instruction
  std::string raised_type_;
  std::unordered_set<int> between_checkpoints_;
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
