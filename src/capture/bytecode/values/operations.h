// Python's operations, done for real by CPython's own functions and accounted for in the trace.
// Each works without a trace as well (nullptr, or one that has stopped): then it is only done.
#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "capture/bytecode/trace/tracing.h"

namespace smelt::bytecode {

// attributes.cpp
// Its attributes are read as object.__getattribute__ does, with or without a __getattr__ behind it.
bool has_generic_attributes(PyTypeObject* type);
// A method of the object's class that is written in Python; nullptr if there is none.
PyObject* python_method(PyObject* object, PyObject* name);
// Calls one that was found so, with the object as the first argument.
Result call_special(Trace& trace, PyObject* method, PyObject* name,
                    std::span<const Value> arguments);
Result get_attribute(Trace* trace, Value object, PyObject* name);
// object.__getattribute__, without a __getattr__ behind it.
Result get_generic_attribute(Trace* trace, Value object, PyObject* name);
// value.object nullptr deletes.
bool set_attribute(Trace* trace, Value object, PyObject* name, Value value);
// object.__setattr__ and __delattr__
bool set_generic_attribute(Trace* trace, Value object, PyObject* name, Value value);
// LOAD_METHOD: either (function, self), as CPython would call it, or (nullptr, attribute).
struct Method {
  Result callee;  // the function, or the attribute if there is no self
  Result self;
};
bool get_method(Trace* trace, Value object, PyObject* name, Method* method);

// call.cpp
Result call(Trace* trace, Value callee, std::span<const Value> arguments, PyObject* names);
// As CPython would, without accounting.
PyObject* call_plainly(PyObject* callee, std::span<const Value> arguments, PyObject* names);

// scalars.cpp. `op`: NB_ADD.. of opcode.h, in-place ones included; Py_LT.. for compare.
Result binary(Trace* trace, int op, Value a, Value b);
Result unary(Trace* trace, ScalarOp op, Value a);
Result compare(Trace* trace, int op, Value a, Value b);
Result is_same(Trace* trace, Value a, Value b, bool negate);
// bool(value): 0, 1, or -1 with an error set.
// `passes`: for which nothing is raised, where the other way out does nothing else.
int truth(Trace* trace, Value value, std::optional<bool> passes = {});
// What CPython asks of the result of a __len__, which becomes an int. False with an error set.
bool check_length(Trace& trace, Result* length);
// format(value, spec) as FORMAT_VALUE does; conversion 0 none, 1 str, 2 repr, 3 ascii. spec may be
// empty.
Result format(Trace* trace, Value value, int conversion, Value spec);
Result join_strings(Trace* trace, std::span<const Value> parts);

// items.cpp
// Their objects.
Object as_tuple(std::span<const Value> values);
// A key is known by value, or an object that stays the same.
void use_key(Trace& trace, Value key);
// Methods of objects are equal if they are the same object's, inside of containers too.
void guard_owners(Trace& trace, PyObject* object);
// Code in Python is asked for the key's hash, or for whether it is equal to another one.
bool is_hashed_by_code(PyObject* key);
// Whether that code may do what can be seen.
bool shows_when_hashed(PyObject* key);
bool has_key_that_shows(PyObject* dict);
// PyDict_GetItemWithError(), with the key's __hash__ and __eq__ followed.
PyObject* look_up(Trace& trace, PyObject* dict, PyObject* key);
// The dict behind a mapping proxy, in the place of the proxy: reads of it are guarded as any dict's
// are. Any other object, and a proxy that the trace can't tell where it is from, is as it was.
Value behind_proxy(Trace& trace, Value proxy);
Result get_item(Trace* trace, Value container, Value key);
bool set_item(Trace* trace, Value container, Value key, Value item);
// dict.__setitem__(dict, key, item), whatever its own class has: what dict.update and such do.
bool set_storage_item(Trace* trace, Value dict, Value key, Value item);
bool delete_item(Trace* trace, Value container, Value key);
Result contains(Trace* trace, Value container, Value item, bool negate);
// list.__getitem__(x, i), set.__contains__(x, item): as the builtin type does it, whatever x's own
// class has.
Result get_storage_item(Trace& trace, Value container, Value key);
Result storage_contains(Trace& trace, PyTypeObject* owner, Value container, Value item);
Result build_tuple(Trace* trace, std::span<const Value> items);
Result build_list(Trace* trace, std::span<const Value> items);
Result build_set(Trace* trace, std::span<const Value> items);
// keys and values alternate
Result build_map(Trace* trace, std::span<const Value> items);
Result build_slice(Trace* trace, std::span<const Value> parts);
// LIST_APPEND, SET_ADD, MAP_ADD, LIST_EXTEND, SET_UPDATE, DICT_UPDATE, DICT_MERGE (without its
// error message), LIST_TO_TUPLE.
bool list_append(Trace* trace, Value list, Value item);
bool list_extend(Trace* trace, Value list, Value items);
bool set_add(Trace* trace, Value set, Value item);
bool set_update(Trace* trace, Value set, Value items);
bool dict_update(Trace* trace, Value dict, Value other);
// By mapping.keys() and mapping[key].
bool update_by_keys(Trace& trace, Value dict, Value mapping, Value keys_method);
bool dict_merge(Trace* trace, Value dict, Value other);
Result list_to_tuple(Trace* trace, Value list);
// The elements of an iterable, one by one and all of them: UNPACK_SEQUENCE, UNPACK_EX,
// CALL_FUNCTION_EX's arguments. New references; false with an error set. Raises nothing about their
// number.
// `sized`: as a list or tuple takes them, which asks for a length first.
bool unpack(Trace* trace, Value iterable, std::vector<Result>& items, bool sized = false);

// iterate.cpp
Result get_iter(Trace* trace, Value iterable);
// C code will go on with this iterator: what it goes over is known from now on. False: it is not.
bool touch_iterator(Trace& trace, Value iterator);
// list.__iter__(x), dict.__iter__(x)
Result get_storage_iter(Trace& trace, PyTypeObject* owner, Value iterable);
// Without an object and an error: it is at its end.
Result next(Trace* trace, Value iterator);
// The same, but at its end a StopIteration may be set, which has what it returns.
Result advance(Trace* trace, Value iterator);

// tensor_values.cpp
// The name of a function in C; empty: it is none.
std::string_view name_in_c(PyObject* callee);
// tensor.item()
Result read_number(Trace& trace, Value tensor);
// A tensor whose contents are the same in each call.
bool is_fixed_tensor(Trace& trace, Value tensor);
// PyTorch's state is changed by a C function, which each cached call calls again.
Result call_switch(Trace& trace, Value callee, std::span<const Value> arguments, PyObject* names);
// The `ctx` of a custom autograd function.
bool is_function_context(PyObject* object);

// argument_code.cpp: what PyTorch's argument parser may call among these arguments.
enum class ArgumentCode : uint8_t {
  none,      // they are tensors, constants and containers of such
  followed,  // special methods in Python (__index__, __float__): under a Transparent they are
             // followed
  hidden,    // code that is not seen, or attributes that are read; the trace has ended
};
ArgumentCode code_among(Trace& trace, std::span<const Value> arguments);
// PyTorch's own method by that name, or none, is what the tensor's class has; that is guarded.
// False: somebody has put another one in its place.
bool has_own_method(Trace& trace, PyObject* tensor, PyObject* name);

// runtime_scalars.cpp: C code of PyTorch's that computes with these arguments, which are used.
// Numbers among them that are run-time scalars it gets as stand-ins, and `call` is given what to
// call with; it may be called a second time if the first has done nothing. Followed by
// trace.check_log().
PyObject* call_on_tensors(Trace& trace, std::span<const Value> arguments,
                          const std::function<PyObject*(std::span<const Value>)>& call);

}  // namespace smelt::bytecode
