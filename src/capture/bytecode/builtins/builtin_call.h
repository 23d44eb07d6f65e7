// One call of a C function while it is decided how it is accounted for. A handler returns false if
// it does not know the call after all; nothing has been done then.
#pragma once

#include <string_view>

#include "capture/bytecode/values/operations.h"

namespace smelt::bytecode {

// Functions of builtins, operator, math and such, and methods of the builtin types: builtins.cpp.
// True if it was one of those that are known and has been called.
bool call_builtin(Trace* trace, Value callee, std::span<const Value> arguments, PyObject* names,
                  Result* result);
// Methods of contextvars.ContextVar: context_vars.cpp; the same.
bool call_context_var(Trace* trace, Value callee, std::span<const Value> arguments, PyObject* names,
                      Result* result);
// copy.copy and copy.deepcopy: copies.cpp; the same.
bool call_copy(Trace& trace, Value function, std::span<const Value> arguments, PyObject* names,
               Result* result);

struct BuiltinCall {
  Trace& trace;
  Value callee;
  std::span<const Value> arguments;
  PyObject* keywords;  // names of the last arguments, or nullptr

  size_t count() const { return arguments.size(); }
  const Value& argument(size_t i) const { return arguments[i]; }
  bool has_keywords() const { return keywords != nullptr && PyTuple_GET_SIZE(keywords) > 0; }
  size_t positional() const {
    return arguments.size() -
           (keywords == nullptr ? 0 : static_cast<size_t>(PyTuple_GET_SIZE(keywords)));
  }
  PyObject* keyword(size_t i) const {
    return PyTuple_GET_ITEM(keywords, static_cast<Py_ssize_t>(i));
  }

  // Calls it; the result must be something known. Special methods in Python that it calls are
  // followed.
  bool plainly(Result* result);
  // The same for code that machinery of Python's does in Python: Enum(value).
  bool by_library(Result* result);
  // The arguments are constants, all of them used; the result is a constant.
  bool on_constants(Result* result);
  bool can_use_all() const;
  // The elements of all arguments are looked at, then it is called.
  bool through_elements(Result* result);
  // list(x), tuple(x), set(x)
  bool build(Result* result, Result (*make)(Trace*, std::span<const Value>));
  bool update_from_pairs(Value dict, Value pairs);
  bool update_from_mapping(Value dict, Value mapping);

  // Everything in it is known from now on: containers element by element, atoms by value. False if
  // it can't be.
  bool touch(Value value);
  bool touch_iterator(Value iterator);
  // C code may call it: a Python function that will be followed, or one that depends on nothing but
  // its arguments.
  bool use_function(Value function);

  Result call_special(PyObject* method, PyObject* name, Value self);
};

// What a handler returns with: its result is this object, or None if `ok`; else an error is set.
inline bool give(Result* result, PyObject* object, Ref ref = 0) {
  *result = {Py_NewRef(object), ref};
  return true;
}
inline bool give_none(Result* result, bool ok) { return !ok || give(result, Py_None); }

// builtin_methods.cpp
bool call_builtin_method(BuiltinCall& c, Result* result);

// builtin_folds.cpp
bool call_sum(BuiltinCall& c, Result* result);
bool call_min(BuiltinCall& c, Result* result);
bool call_max(BuiltinCall& c, Result* result);
bool call_reduce(BuiltinCall& c, Result* result);

// builtin_sizes.cpp: of numbers that may be others in the next call. False: there are none, or they
// are to be known.
bool call_prod(BuiltinCall& c, Result* result);
bool call_divmod(BuiltinCall& c, Result* result);
bool make_size(BuiltinCall& c, Result* result);  // torch.Size
bool call_size_method(BuiltinCall& c, Result* result);
// enumerate, reversed
bool make_iterator_over_numbers(BuiltinCall& c, Result* result);

// builtin_sort.cpp
bool call_sorted(BuiltinCall& c, Result* result);
// list.sort, with the values of its keywords.
bool sort_list(BuiltinCall& c, Value list, std::span<const Value> options, Result* result);

// builtin_operators.cpp
// Functions of `operator`; not all of them only look (is_operation).
bool call_operator_function(BuiltinCall& c, std::string_view name, Result* result);
bool is_operation(std::string_view name);
// operator.itemgetter and such: making one, and calling one.
bool is_getter_type(const PyTypeObject* type);
bool make_getter(BuiltinCall& c, Result* result);
bool call_getter(BuiltinCall& c, Result* result);
// bisect.insort, heapq's functions in C: they change a list, their first argument.
bool change_list(BuiltinCall& c, Result* result);

// builtin_numbers.cpp
// All of them numbers, and one of them not known by value.
bool are_lazy_numbers(std::span<const Value> arguments);
// math.cos(x), int(x), abs(x) of numbers that a cached call computes again; other arguments are
// used.
bool call_on_numbers(BuiltinCall& c, Result* result);
// float(x), int(x) of an object whose class says how, in Python.
bool convert_object(BuiltinCall& c, Result* result);
// bisect_left(sequence, x), bisect_right: what decides is how x compares.
bool call_bisect(BuiltinCall& c, std::string_view name, Result* result);

// builtin_operands.cpp
// abs(x), round(x), pow(x, y), math.floor(x) of tensors and of objects whose class has the method.
bool call_on_operands(BuiltinCall& c, std::string_view function, Result* result);

// cached_functions.cpp: functools.lru_cache's wrappers. Its result is a function of the arguments,
// or the cache would be wrong.
bool call_cached_function(BuiltinCall& c, Result* result);

// instance_checks.cpp
bool call_isinstance(BuiltinCall& c, Result* result);
bool call_issubclass(BuiltinCall& c, Result* result);
// Functions of _abc, by which abstract classes are asked.
bool call_abstract_check(BuiltinCall& c, std::string_view name, Result* result);
// type.__instancecheck__(cls, object), type.__subclasscheck__(cls, other)
bool call_type_check(Trace& trace, Value cls, std::span<const Value> arguments,
                     std::string_view name, Result* result);

// warnings.cpp: warnings.warn(text), and what tells C that the filters have changed.
bool call_warnings(BuiltinCall& c, std::string_view name, Result* result);

// builtin_objects.cpp: objects of C's that are not containers.
bool make_partial(BuiltinCall& c, Result* result);
// re.Pattern's methods that give a re.Match, of constants. One that the trace made is asked as a
// constant is, and made again by the same call where it is needed.
bool makes_match(const PyTypeObject* owner, std::string_view name);
bool make_match(BuiltinCall& c, Value pattern, std::span<const Value> arguments,
                std::string_view name, Result* result);
// re.Pattern.finditer of constants: the matches that come out of it can't be made again.
bool make_matches(BuiltinCall& c, std::span<const Value> arguments, Result* result);
// str(x), repr(x); name: __str__, __repr__
bool call_text(BuiltinCall& c, PyObject* name, Result* result);
// collections._count_elements(mapping, iterable)
bool count_elements(BuiltinCall& c, Result* result);
// send, throw, close of a generator; acquire, release of a lock; BaseException.__init__
bool call_method_of_object(BuiltinCall& c, Value self, std::span<const Value> arguments,
                           std::string_view name, PyTypeObject* owner, Result* result);

}  // namespace smelt::bytecode
