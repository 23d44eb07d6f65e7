// CPython 3.11's instructions.
#include <opcode.h>

#include "capture/bytecode/interpret/instruction_handlers.h"

#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030C0000

namespace smelt::bytecode {

bool InstructionHandlers::supports_this_python() { return true; }

bool InstructionHandlers::take_prefix(int opcode, int argument) {
  if (opcode == KW_NAMES) keyword_names_ = constant(argument);
  return opcode == KW_NAMES || opcode == PRECALL;
}

InstructionHandlers::Flow InstructionHandlers::execute(int opcode, int argument) {
  const int n = argument;
  switch (opcode) {
    case NOP:
    case RESUME: return Flow::next;
    case POP_TOP: return done(1, true);
    case PUSH_NULL: push(nullptr, 0); return Flow::next;
    case COPY: return copy(n);
    case SWAP: return swap(n);

    case LOAD_CONST: return load_const(n);
    case LOAD_FAST: return load_fast(n);
    case STORE_FAST: return store_fast(n);
    case DELETE_FAST: return delete_fast(n);
    case LOAD_GLOBAL: return load_global(n >> 1, (n & 1) != 0);
    case STORE_GLOBAL: return store_global(n);
    case DELETE_GLOBAL: return delete_global(n);
    case LOAD_NAME: return load_name(n);
    case STORE_NAME: return store_name(n);
    case DELETE_NAME: return delete_name(n);
    case MAKE_CELL: return make_cell(n);
    case COPY_FREE_VARS: return copy_free_vars(n);
    case LOAD_CLOSURE: return load_closure(n);
    case LOAD_DEREF: return load_cell(n);
    case STORE_DEREF: return store_cell(n);
    case DELETE_DEREF: return delete_cell(n);
    case LOAD_CLASSDEREF: return load_class_cell(n);

    case LOAD_ATTR: return load_attribute(n);
    case LOAD_METHOD: return load_method(n);
    case STORE_ATTR: return store_attribute(n);
    case DELETE_ATTR: return delete_attribute(n);
    case IMPORT_NAME: return import_name(n);
    case IMPORT_FROM: return import_from(n);
    case LOAD_BUILD_CLASS: return load_build_class();
    case LOAD_ASSERTION_ERROR: push(Py_NewRef(PyExc_AssertionError), 0); return Flow::next;

    case BINARY_OP: return binary_op(n);
    case COMPARE_OP: return compare_op(n);
    case IS_OP: return is_op(n != 0);
    case CONTAINS_OP: return contains_op(n != 0);
    case UNARY_POSITIVE: return unary_op(ScalarOp::unary_positive);
    case UNARY_NEGATIVE: return unary_op(ScalarOp::unary_negative);
    case UNARY_INVERT: return unary_op(ScalarOp::unary_invert);
    case UNARY_NOT: return unary_not();
    case BINARY_SUBSCR: return subscript();
    case STORE_SUBSCR: return store_subscript();
    case DELETE_SUBSCR: return delete_subscript();

    case BUILD_TUPLE: return build(bytecode::build_tuple, n);
    case BUILD_LIST: return build(bytecode::build_list, n);
    case BUILD_SET: return build(bytecode::build_set, n);
    case BUILD_MAP: return build(bytecode::build_map, 2 * n);
    case BUILD_CONST_KEY_MAP: return build_const_key_map(n);
    case BUILD_SLICE: return build(bytecode::build_slice, n);
    case BUILD_STRING: return build(bytecode::join_strings, n);
    case FORMAT_VALUE: return format_value(n);
    case LIST_APPEND: return extend(bytecode::list_append, n);
    case LIST_EXTEND: return extend(bytecode::list_extend, n);
    case LIST_TO_TUPLE: return to_tuple();
    case SET_ADD: return extend(bytecode::set_add, n);
    case SET_UPDATE: return extend(bytecode::set_update, n);
    case MAP_ADD: return map_add(n);
    case DICT_UPDATE: return extend(bytecode::dict_update, n);
    case DICT_MERGE: return merge_keywords(n);
    case UNPACK_SEQUENCE: return unpack_sequence(n);
    case UNPACK_EX: return unpack_with_rest(n & 0xff, n >> 8);

    case JUMP_FORWARD: return jump(n);
    case JUMP_BACKWARD: return jump_backward(n);
    case JUMP_BACKWARD_NO_INTERRUPT: return jump(-n);
    case POP_JUMP_FORWARD_IF_FALSE: return jump_if(false, n);
    case POP_JUMP_FORWARD_IF_TRUE: return jump_if(true, n);
    case POP_JUMP_BACKWARD_IF_FALSE: return jump_if(false, -n);
    case POP_JUMP_BACKWARD_IF_TRUE: return jump_if(true, -n);
    case POP_JUMP_FORWARD_IF_NONE: return jump_if_none(true, n);
    case POP_JUMP_FORWARD_IF_NOT_NONE: return jump_if_none(false, n);
    case POP_JUMP_BACKWARD_IF_NONE: return jump_if_none(true, -n);
    case POP_JUMP_BACKWARD_IF_NOT_NONE: return jump_if_none(false, -n);
    case JUMP_IF_FALSE_OR_POP: return jump_if_or_pop(false, n);
    case JUMP_IF_TRUE_OR_POP: return jump_if_or_pop(true, n);
    case GET_ITER: return get_iterator();
    case FOR_ITER: return for_iter(n);
    case GET_YIELD_FROM_ITER: return get_yield_from_iterator();
    case SEND: return send(n, false);
    case YIELD_VALUE: return yield_value();
    case RETURN_VALUE: return return_value();
    case RETURN_GENERATOR: return Flow::generator;

    case GET_LEN: return get_length();
    case MATCH_MAPPING: return match_flag(Py_TPFLAGS_MAPPING);
    case MATCH_SEQUENCE: return match_flag(Py_TPFLAGS_SEQUENCE);
    case MATCH_KEYS: return match_keys();
    case MATCH_CLASS: return match_class(n);

    case CALL: return call_op(n);
    case CALL_FUNCTION_EX: return call_with_unpacking((n & 1) != 0);
    case MAKE_FUNCTION: return make_function(n);
    case BEFORE_WITH: return before_with();
    case WITH_EXCEPT_START: return with_except_start();

    case PUSH_EXC_INFO: return push_exc_info();
    case POP_EXCEPT: return pop_except();
    case CHECK_EXC_MATCH: return check_exception_match();
    case RAISE_VARARGS: return raise(n);
    case RERAISE: return reraise(n);

    // CPython goes on with the frame from here. Coroutines, modules and class bodies have it run
    // their frames anyway.
    case CHECK_EG_MATCH: return unsupported("CHECK_EG_MATCH");
    case PREP_RERAISE_STAR: return unsupported("PREP_RERAISE_STAR");
    case GET_AITER: return unsupported("GET_AITER");
    case GET_ANEXT: return unsupported("GET_ANEXT");
    case GET_AWAITABLE: return unsupported("GET_AWAITABLE");
    case BEFORE_ASYNC_WITH: return unsupported("BEFORE_ASYNC_WITH");
    case END_ASYNC_FOR: return unsupported("END_ASYNC_FOR");
    case ASYNC_GEN_WRAP: return unsupported("ASYNC_GEN_WRAP");
    case SETUP_ANNOTATIONS: return unsupported("SETUP_ANNOTATIONS");
    case IMPORT_STAR: return unsupported("IMPORT_STAR");
    case PRINT_EXPR: return unsupported("PRINT_EXPR");
    default: return unsupported("of an unknown kind");
  }
}

}  // namespace smelt::bytecode

#endif
