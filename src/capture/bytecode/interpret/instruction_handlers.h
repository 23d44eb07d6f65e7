// What each instruction does, to the frame and for the trace. The handlers are shared by all versions
// of CPython; opcodes_3xx.cpp maps a version's instructions to them.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "capture/bytecode/interpret/frame_state.h"

namespace smelt::bytecode {

class InstructionHandlers : public FrameState {
 public:
  // Whether there is code for this version of CPython's instructions.
  static bool supports_this_python();

 protected:
  using FrameState::FrameState;
  ~InstructionHandlers() = default;

  // opcodes_3xx.cpp. Parts of an instruction that come before it (KW_NAMES): true if it was one.
  bool take_prefix(int opcode, int argument);
  Flow execute(int opcode, int argument);

  // -- module_calls.cpp
  Flow call_module();

 private:
  bool is_scripting();  // module_calls.cpp

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
};

}  // namespace smelt::bytecode
