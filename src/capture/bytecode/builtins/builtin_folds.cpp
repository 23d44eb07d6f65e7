// sum, min, max and functools.reduce: one element after the other is taken and worked in, as
// CPython does it, so that code in Python on both sides runs in that order.
#include <opcode.h>

#include <string>

#include "capture/bytecode/builtins/builtin_call.h"

namespace smelt::bytecode {
namespace {

// What has come out so far; nothing at first.
class Running {
 public:
  ~Running() { Py_XDECREF(now_.object); }
  Running() = default;
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  bool is_empty() const { return now_.object == nullptr; }
  Value value() const { return {now_.object, now_.ref}; }
  void set(Result next) {  // takes it over
    Py_XDECREF(now_.object);
    now_ = next;
  }
  void share(Value next) { set({Py_NewRef(next.object), next.ref}); }
  Result take() { return std::exchange(now_, {}); }

 private:
  Result now_;
};

// `work` is given each element; false ends it with an error set.
template <typename Work>
bool for_each_of(Trace& trace, Result iterator, const Work& work) {
  const Object held = Object::steal(iterator.object);
  for (;;) {
    const Result item = next(&trace, {iterator.object, iterator.ref});
    if (item.object == nullptr) return PyErr_Occurred() == nullptr;
    const Object held_item = Object::steal(item.object);
    if (!work(Value{item.object, item.ref})) return false;
  }
}

template <typename Work>
bool for_each(Trace& trace, Value iterable, const Work& work) {
  const Result iterator = get_iter(&trace, iterable);
  return iterator.object != nullptr && for_each_of(trace, iterator, work);
}

struct ExtremeOptions {
  Value key, fallback;
};

// False: a keyword that is not known, which raises.
bool read_options(const BuiltinCall& c, ExtremeOptions* options) {
  for (size_t i = c.positional(); i < c.count(); ++i) {
    const std::string name = text_of(c.keyword(i - c.positional()));
    if (name == "key" && c.argument(i).object != Py_None)
      options->key = c.argument(i);
    else if (name == "default")
      options->fallback = c.argument(i);
    else if (name != "key")
      return false;
  }
  return c.positional() == 1 || options->fallback.object == nullptr;
}

void complain_of_nothing(bool is_max) {
#if PY_VERSION_HEX < 0x030C0000
  PyErr_Format(PyExc_ValueError, "%s() arg is an empty sequence", is_max ? "max" : "min");
#else
  PyErr_Format(PyExc_ValueError, "%s() iterable argument is empty", is_max ? "max" : "min");
#endif
}

bool call_extreme(BuiltinCall& c, bool is_max, Result* result) {
  ExtremeOptions options;
  if (c.positional() == 0 || !read_options(c, &options)) return c.plainly(result);  // raises
  if (c.count() == 2 && !c.has_keywords() && are_lazy_numbers(c.arguments))
    return call_on_numbers(c, result);
  Running best, best_key;
  const auto take = [&](Value item) {
    Result key{Py_NewRef(item.object), item.ref};
    if (options.key.object != nullptr) {
      Py_DECREF(key.object);
      key = call(&c.trace, options.key, std::span(&item, 1), nullptr);
      if (key.object == nullptr) return false;
    }
    const Object held = Object::share(key.object);
    Running current;
    current.set(key);
    if (!best.is_empty()) {
      const Result better =
          compare(&c.trace, is_max ? Py_GT : Py_LT, current.value(), best_key.value());
      if (better.object == nullptr) return false;
      const Object held_better = Object::steal(better.object);
      const int is_better = truth(&c.trace, {better.object, better.ref});
      if (is_better <= 0) return is_better == 0;
    }
    best.share(item);
    best_key.set(current.take());
    return true;
  };
  bool ok = true;
  if (c.positional() == 1)
    ok = for_each(c.trace, c.argument(0), take);
  else
    for (size_t i = 0; ok && i < c.positional(); ++i) ok = take(c.argument(i));
  if (!ok) return true;
  if (best.is_empty() && options.fallback.object != nullptr) best.share(options.fallback);
  if (best.is_empty())
    complain_of_nothing(is_max);
  else
    *result = best.take();
  return true;
}

}  // namespace

bool call_sum(BuiltinCall& c, Result* result) {
  if (c.count() < 1 || c.count() > 2 || c.positional() == 0) return c.plainly(result);
  if (c.has_keywords() && text_of(c.keyword(0)) != "start") return c.plainly(result);
  if (c.count() == 2) {
    PyObject* start = c.argument(1).object;
    if (PyUnicode_Check(start) || PyBytes_Check(start) || PyByteArray_Check(start)) {
      c.trace.guard_type(c.argument(1));
      return c.plainly(result);  // raises
    }
  }
  const Object zero = Object::steal(PyLong_FromLong(0));
  Running total;
  total.share(c.count() == 2 ? c.argument(1) : Value{zero.get(), 0});
  const bool ok = for_each(c.trace, c.argument(0), [&](Value item) {
    total.set(binary(&c.trace, NB_ADD, total.value(), item));
    return !total.is_empty();
  });
  if (ok) *result = total.take();
  return true;
}

bool call_min(BuiltinCall& c, Result* result) { return call_extreme(c, false, result); }
bool call_max(BuiltinCall& c, Result* result) { return call_extreme(c, true, result); }

bool call_reduce(BuiltinCall& c, Result* result) {
  if (c.count() < 2 || c.count() > 3 || c.has_keywords()) return false;
  Running total;
  if (c.count() == 3) total.share(c.argument(2));
  const Result iterator = get_iter(&c.trace, c.argument(1));
  if (iterator.object == nullptr) {
    if (PyErr_ExceptionMatches(PyExc_TypeError))
      PyErr_SetString(PyExc_TypeError, "reduce() arg 2 must support iteration");
    return true;
  }
  const bool ok = for_each_of(c.trace, iterator, [&](Value item) {
    if (total.is_empty()) {
      total.share(item);
      return true;
    }
    const Value arguments[] = {total.value(), item};
    total.set(call(&c.trace, c.argument(0), arguments, nullptr));
    return !total.is_empty();
  });
  if (!ok) return true;
  if (total.is_empty())
    PyErr_SetString(PyExc_TypeError, "reduce() of empty iterable with no initial value");
  else
    *result = total.take();
  return true;
}

}  // namespace smelt::bytecode
