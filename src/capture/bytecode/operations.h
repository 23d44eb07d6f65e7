// Python's operations, done for real by CPython's own functions and accounted for in the trace.
// Each works without a trace as well (nullptr, or one that has stopped): then it is only done.
//
// A Result is a new reference with its ref, or nullptr with an error set (for next(): nullptr
// without an error at the end).
#pragma once

#include <functional>
#include <span>

#include "capture/bytecode/trace.h"

namespace smelt::bytecode {

struct Result {
  PyObject* object = nullptr;
  Ref ref = 0;
};

inline bool is_following(Trace* trace) { return trace != nullptr && trace->active(); }

// Gives back what unpack() and the like have handed out.
inline void release(std::vector<Result>& items) {
  for (const Result& item : items) Py_DECREF(item.object);
  items.clear();
}

// attributes.cpp
// The names that the type itself defines.
Object own_dict(PyTypeObject* type);
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

// module_calls.cpp. What nn.Module.__getattr__, if that is the getter, finds among the parameters,
// buffers and modules. False: nothing was done.
bool get_module_state(Trace& trace, Value module, PyObject* name, Value getter, Result* result);

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
// Code in Python is asked for the key's hash, or for whether it is equal to another one.
bool is_hashed_by_code(PyObject* key);
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
// LIST_APPEND, SET_ADD, MAP_ADD, LIST_EXTEND, SET_UPDATE, DICT_UPDATE, DICT_MERGE (with the callee
// for its error message), LIST_TO_TUPLE.
bool list_append(Trace* trace, Value list, Value item);
bool list_extend(Trace* trace, Value list, Value items);
bool set_add(Trace* trace, Value set, Value item);
bool set_update(Trace* trace, Value set, Value items);
bool dict_update(Trace* trace, Value dict, Value other);
// By mapping.keys() and mapping[key].
bool update_by_keys(Trace& trace, Value dict, Value mapping, Value keys_method);
bool dict_merge(Trace* trace, Value dict, Value other, PyObject* callee);
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
Result next(Trace* trace, Value iterator);

// calls.cpp
Result call(Trace* trace, Value callee, std::span<const Value> arguments, PyObject* names);
// Functions of builtins, operator, math and such, and methods of the builtin types: builtins.cpp.
// True if it was one of those that are known and has been called.
bool call_builtin(Trace* trace, Value callee, std::span<const Value> arguments, PyObject* names,
                  Result* result);
// torch's C functions: torch_calls.cpp; the same.
bool call_torch(Trace* trace, Value callee, std::span<const Value> arguments, PyObject* names,
                Result* result);
// tensor.item()
Result read_number(Trace& trace, Value tensor);
// A tensor whose contents are the same in each call.
bool is_fixed_tensor(Trace& trace, Value tensor);
// PyTorch's state is changed by a C function, which each cached call calls again.
Result call_switch(Trace& trace, Value callee, std::span<const Value> arguments, PyObject* names);
// torch_state.cpp: functions of torch._C that read or set what no op on this machine depends on.
// False: it is none of these.
bool call_state(Trace& trace, Value callee, std::span<const Value> arguments, PyObject* names,
                Result* result);
// Methods of contextvars.ContextVar: context_vars.cpp; the same.
bool call_context_var(Trace* trace, Value callee, std::span<const Value> arguments, PyObject* names,
                      Result* result);
// learning_rates.cpp: which argument is the learning rate of a fused optimizer's step and a
// run-time scalar (else the number of arguments), and what to give in its place.
size_t place_of_rate(Trace& trace, PyObject* function, std::span<const Value> arguments,
                     PyObject* keywords);
Result rate_as_tensor(Trace& trace, Value rate);

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
// Functions that work on the autograd graph: autograd_calls.cpp; the same.
bool call_autograd(Trace& trace, Value function, std::span<const Value> arguments, PyObject* names,
                   Result* result);
// requires_grad_() and such: the call is made again by each run, in its place among the tensor ops.
Result call_on_graph(Trace& trace, Value callee, std::span<const Value> arguments, PyObject* names);
bool make_parameter(Trace& trace, Value callee, std::span<const Value> arguments,
                    PyObject* keywords, Result* result);
// torch.autograd.profiler.record_function, a label in a profile: profiler_calls.cpp; the same.
bool call_profiler(Trace& trace, Value function, std::span<const Value> arguments, PyObject* names,
                   Result* result);
// copy.copy and copy.deepcopy: copies.cpp; the same.
bool call_copy(Trace& trace, Value function, std::span<const Value> arguments, PyObject* names,
               Result* result);
// torch.utils.checkpoint.checkpoint: checkpoints.cpp; the same.
bool call_checkpoint(Trace& trace, Value function, std::span<const Value> arguments,
                     PyObject* names, Result* result);
// The `ctx` of a custom autograd function.
bool is_function_context(PyObject* object);
// As CPython would, without accounting.
PyObject* call_plainly(PyObject* callee, std::span<const Value> arguments, PyObject* names);

// Whose Python code may run unseen while a trace is under way, because what it does depends on
// nothing but what is guarded. Any other frame is followed or ends the trace.
enum class Trust : uint8_t {
  nobody,
  libraries,  // PyTorch's own, and the machinery of Python named in hook.cpp; and, below an op that
              // the log has, whatever implements the op: each run calls it again
  everybody,  // the caller says why
};

// Python code that C code calls in the meantime is run by CPython and not followed, if it is
// trusted. The log goes on, unless `log` is false.
class Unfollowed {
 public:
  explicit Unfollowed(Trace* trace, bool log = true, Trust trust = Trust::libraries);
  ~Unfollowed();
  Unfollowed(const Unfollowed&) = delete;
  Unfollowed& operator=(const Unfollowed&) = delete;

 private:
  Trace* trace_;
  bool log_;
  Trust outer_ = Trust::nobody;
};

// C code that decides by nothing but what is known already, and by what the Python code says that
// it calls back. Such code is followed: special methods of the objects' classes, generators that
// are being followed, and the functions that may_call_back() was told of. What a callback returns
// is settled, with `looks_inside` to the last element. A call of this kind is not repeated by a
// cached call: only what it did is.
class Transparent {
 public:
  explicit Transparent(Trace* trace, bool looks_inside = false);
  ~Transparent();
  Transparent(const Transparent&) = delete;
  Transparent& operator=(const Transparent&) = delete;

 private:
  bool entered_ = false, transparent_ = false, looks_inside_ = false;
  Trust trust_ = Trust::nobody;
};

// C code that each cached call runs again, by a step or with the guards. Special methods that it
// calls are followed for what they depend on. Since they are called again as well, the trace ends
// if they do anything that shows.
class Repeated {
 public:
  explicit Repeated(Trace* trace);
  ~Repeated();
  Repeated(const Repeated&) = delete;
  Repeated& operator=(const Repeated&) = delete;

 private:
  Trace* trace_;
  const Transparent transparent_;
  Trace::Mark start_;
  size_t ops_ = 0;
};
// C code gets this function or bound method to call. False if it is nothing of the kind.
bool may_call_back(Trace& trace, Value function);
// calls.cpp: whether calls of the Python function are followed at all.
bool is_followed(PyObject* function);
// The module of a library that a Python function is of; empty: it is the user's (libraries.h).
std::string_view module_of(PyObject* function);
// The function is of that module of a library.
bool is_in_module(PyObject* function, std::string_view module);
// The function of that name in one of torch's modules.
bool is_function_of(PyObject* function, std::string_view module, std::string_view name);

// inline.cpp: a Python function called with the interpreter following into its frame.
Result call_function(Trace& trace, Value function, std::span<const Value> arguments,
                     PyObject* names);
// next() of a generator whose frame the trace has been following; false if it has not been.
bool next_generator(Trace& trace, PyObject* generator, Result* result);
// gen.send, throw, close are calls of C functions.

}  // namespace smelt::bytecode
