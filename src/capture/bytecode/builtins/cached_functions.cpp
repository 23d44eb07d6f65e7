// Functions behind functools.lru_cache.
#include <algorithm>

#include "capture/bytecode/builtins/builtin_call.h"

namespace smelt::bytecode {
namespace {

// By which the cache finds its result: an object from outside, known by identity.
bool is_plain_key(const Trace& trace, PyObject* object) {
  return trace.is_tracked(object) && !trace.is_born(object) &&
         (tensors().is_tensor(object) || is_known_by_identity(Py_TYPE(object)));
}

// As a dict; empty if there are none.
Object keywords_of(const BuiltinCall& c) {
  if (!c.has_keywords()) return {};
  Object dict = Object::steal(PyDict_New());
  for (size_t i = 0; c.positional() + i < c.count(); ++i)
    PyDict_SetItem(dict.get(), c.keyword(i), c.argument(c.positional() + i).object);
  return dict;
}

bool is_own_tensor(const Trace& trace, PyObject* object) {
  return tensors().is_tensor(object) && trace.is_born(object);
}

// A tensor that the run makes is in no cache: the function is followed, and the cache, which would
// keep the tensor and never be asked for it again, is left as it is.
bool follow_behind_cache(BuiltinCall& c, Result* result) {
  const Object function = Object::steal(PyObject_GetAttrString(c.callee.object, "__wrapped__"));
  PyErr_Clear();
  if (!function || !PyFunction_Check(function.get())) return false;
  for (const Value& v : c.arguments)
    if (!is_constant(v.object) && !is_own_tensor(c.trace, v.object) &&
        !is_plain_key(c.trace, v.object))
      return false;
  c.trace.guard_same(c.callee);
  c.trace.hold(function.get());
  *result = call(&c.trace, {function.get(), 0}, c.arguments, c.keywords);
  return true;
}

}  // namespace

// What it computes when it is first called is no part of the trace. Its result is what the cache
// has, which each cached call asks for: it may be another one when the cache has been emptied. A
// function that gives nothing is called for what it does: logger.warning_once(text).
bool call_cached_function(BuiltinCall& c, Result* result) {
  if (!is_cached_function(c.callee.object) || c.trace.is_born(c.callee.object)) return false;
  if (std::ranges::any_of(c.arguments,
                          [&](const Value& v) { return is_own_tensor(c.trace, v.object); }))
    return follow_behind_cache(c, result);
  for (const Value& v : c.arguments) {
    if (is_constant(v.object)) continue;
    if (!is_plain_key(c.trace, v.object)) return false;
  }
  for (const Value& v : c.arguments) use_key(c.trace, v);
  c.trace.guard_same(c.callee);
  {
    // By its contract with the cache it depends on its arguments alone.
    const Unfollowed unfollowed(&c.trace, false, Trust::everybody);
    result->object = call_plainly(c.callee.object, c.arguments, c.keywords);
  }
  c.trace.check_log(true);
  if (result->object == nullptr) {
    c.trace.stop(BreakReason::raised, "a cached function");
    return true;
  }
  if (result->object != Py_None) {
    const Object keywords = keywords_of(c);
    result->ref =
        c.trace.remembered(c.callee.object, as_tuple(c.arguments.first(c.positional())).get(),
                           keywords.get(), result->object);
    return true;
  }
  std::vector<Value> inputs{c.callee};
  inputs.insert(inputs.end(), c.arguments.begin(), c.arguments.end());
  c.trace.effect_call(inputs, c.keywords);
  return true;
}

}  // namespace smelt::bytecode
