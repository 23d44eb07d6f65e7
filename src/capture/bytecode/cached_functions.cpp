// Functions behind functools.lru_cache. A constant that one gives is a constant. Any other object
// that it gives is found again by asking the cache, before a cached call does anything else: as
// long as the cache has kept it, it is the very object that code gets there. A function that would
// have to run for it is not asked.
#include <algorithm>
#include <string_view>

#include "capture/bytecode/builtin_call.h"
#include "capture/bytecode/hook.h"

namespace smelt::bytecode {
namespace {

// By which the cache finds its result: an object from outside, known by identity.
bool is_plain_key(const Trace& trace, PyObject* object) {
  return trace.is_tracked(object) && !trace.is_born(object) &&
         (tensors().is_tensor(object) || is_known_by_identity(Py_TYPE(object)));
}

struct CacheState {
  long misses = -1;        // calls of the function itself; 0 again when the cache is emptied
  bool keeps_all = false;  // it has never dropped a result since
};

CacheState state_of(PyObject* cached) {
  const Object info = Object::steal(PyObject_CallMethod(cached, "cache_info", nullptr));
  if (!info || !PyTuple_Check(info.get()) || PyTuple_GET_SIZE(info.get()) != 4) {
    PyErr_Clear();
    return {};
  }
  const long misses = PyLong_AsLong(PyTuple_GET_ITEM(info.get(), 1));
  const long size = PyLong_AsLong(PyTuple_GET_ITEM(info.get(), 3));
  return {misses, PyTuple_GET_ITEM(info.get(), 2) == Py_None || size == misses};
}

// ask_cache(function, misses at the time, keyword names or None, arguments...): what the cache has
// for them; None if it may have lost it.
PyObject* ask_cache(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  const AdoptionScope none(PyThreadState_Get(), nullptr);  // what it tells is made by Python code
  const CacheState now = state_of(arguments[0]);
  if (!now.keeps_all || now.misses < PyLong_AsLong(arguments[1])) Py_RETURN_NONE;
  PyObject* names = arguments[2] == Py_None ? nullptr : arguments[2];
  const Py_ssize_t named = names == nullptr ? 0 : PyTuple_GET_SIZE(names);
  return PyObject_Vectorcall(arguments[0], arguments + 3, static_cast<size_t>(count - 3 - named),
                             names);
}

PyObject* ask_cache_function() {
  static PyMethodDef definition{"a cached function",
                                reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(&ask_cache)),
                                METH_FASTCALL, nullptr};
  static PyObject* const function = PyCFunction_New(&definition, nullptr);
  return function;
}

// The object that the cache has is the one that it had: found in a list of one, which stays as it
// is.
bool take_kept(BuiltinCall& c, Result* result) {
  CacheState state;
  {
    const Unfollowed unfollowed(&c.trace, false);
    state = state_of(c.callee.object);
  }
  if (!state.keeps_all || state.misses <= 0) return false;
  const Object misses = Object::steal(PyLong_FromLong(state.misses));
  std::vector<Value> asked{c.callee, {misses.get(), 0}, {c.keywords ? c.keywords : Py_None, 0}};
  asked.insert(asked.end(), c.arguments.begin(), c.arguments.end());
  c.trace.guard_reading(ask_cache_function(), as_tuple(asked).get(), result->object);
  const Object holder = Object::steal(PyList_New(1));
  PyList_SET_ITEM(holder.get(), 0, Py_NewRef(result->object));
  c.trace.hold(holder.get());
  result->ref =
      c.trace.read_item({holder.get(), c.trace.object_behind(holder.get())}, 0, result->object);
  return true;
}

}  // namespace

bool call_cached_function(BuiltinCall& c, Result* result) {
  if (!is_cached_function(c.callee.object) || c.trace.is_born(c.callee.object)) return false;
  bool has_objects = false;
  for (const Value& v : c.arguments) {
    if (is_constant(v.object)) continue;
    if (!is_plain_key(c.trace, v.object)) return false;
    has_objects = true;
  }
  for (const Value& v : c.arguments) {
    if (is_constant(v.object))
      use_key(c.trace, v);
    else
      c.trace.guard_same(v);
  }
  c.trace.guard_same(c.callee);
  {
    // Cached calls do not run it, so its ops are none of the program's.
    const Unfollowed unfollowed(&c.trace, false);
    result->object = call_plainly(c.callee.object, c.arguments, c.keywords);
  }
  c.trace.check_log(true);
  if (result->object == nullptr) {
    c.trace.stop(BreakReason::exception, "a cached function");
    return true;
  }
  const bool is_known = is_constant(result->object) && (!has_objects || result->object == Py_None);
  if (!is_known) {
    if (!take_kept(c, result))
      c.trace.stop(BreakReason::unknown_object, Py_TYPE(result->object)->tp_name);
    return true;
  }
  // The call is made again for what it does to the cache.
  std::vector<Value> inputs{c.callee};
  inputs.insert(inputs.end(), c.arguments.begin(), c.arguments.end());
  c.trace.effect_call(inputs, c.keywords);
  return true;
}

}  // namespace smelt::bytecode
