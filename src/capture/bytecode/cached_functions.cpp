// Functions behind functools.lru_cache.
#include "capture/bytecode/builtin_call.h"

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

}  // namespace

// Its result is a function of the arguments, or the cache would be wrong; what it computes when it
// is first called is no part of the trace. A constant is one, and the call is made again for what
// it does to the cache. Anything else (a tensor) is what the cache has: each cached call asks it.
// So is what an object gives, which may be another thing when the object has changed and the cache
// has lost it, unless it is nothing: logger.warning_once(text).
bool call_cached_function(BuiltinCall& c, Result* result) {
  if (!is_cached_function(c.callee.object) || c.trace.is_born(c.callee.object)) return false;
  bool has_objects = false;
  for (const Value& v : c.arguments) {
    if (is_constant(v.object)) continue;
    if (!is_plain_key(c.trace, v.object)) return false;
    has_objects = true;
  }
  for (const Value& v : c.arguments) use_key(c.trace, v);
  c.trace.guard_same(c.callee);
  {
    const Unfollowed unfollowed(&c.trace, false);
    result->object = call_plainly(c.callee.object, c.arguments, c.keywords);
  }
  c.trace.check_log(true);
  if (result->object == nullptr) {
    c.trace.stop(BreakReason::exception, "a cached function");
    return true;
  }
  if (!is_constant(result->object) || (has_objects && result->object != Py_None)) {
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
