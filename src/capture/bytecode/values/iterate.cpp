// Iteration. An iterator that the trace made is followed: what comes out of it is known because
// what it goes over is.
#include <string>
#include <string_view>
#include <unordered_set>

#include "capture/bytecode/cpython/iterators.h"
#include "capture/bytecode/cpython/known_types.h"
#include "capture/bytecode/cpython/names.h"
#include "capture/bytecode/trace/boundary.h"
#include "capture/bytecode/values/operations.h"
#include "capture/bytecode/values/sizes.h"

namespace smelt::bytecode {
namespace {

// What comes out of the iterator: keys, or elements that are looked at one by one, atoms among the
// values settled.
void touch_dict(Trace& trace, Value dict, PyObject* iterator) {
  trace.guard_keys(dict);
  if (PyDict_CheckExact(dict.object) && Py_TYPE(iterator) == &PyDictIterKey_Type) return;
  PyObject *key, *item;
  Py_ssize_t at = 0;
  while (trace.active() && PyDict_Next(dict.object, &at, &key, &item)) {
    const Ref ref = trace.read_dict(dict, key, item);
    if (is_constant(item)) trace.use({item, ref});
  }
}

// The dict that a view shows: one that the trace knows already, or by a path through the view.
Value dict_behind(Trace& trace, Value view) {
  PyObject* dict = gone_over(view.object);
  const Value known = trace.value(dict);
  if (known.ref != 0 || trace.is_tracked(dict)) return known;
  if (view.ref == 0) trace.stop(BreakReason::unknown_object, Py_TYPE(view.object)->tp_name);
  return {dict, trace.read(NodeKind::iterated, view, nullptr, 0, dict)};
}

// What map, zip and the like go over, in the order of their constructor's arguments.
Object inner_of(PyObject* iterator) {
  static PyObject* reduce = PyUnicode_InternFromString("__reduce__");
  Object state = Object::steal(PyObject_CallMethodNoArgs(iterator, reduce));
  if (!state) {
    PyErr_Clear();
    return {};
  }
  return Object::share(PyTuple_GET_ITEM(state.get(), 1));
}

PyObject* advance_plainly(PyObject* iterator) {
  note_act();
  return Py_TYPE(iterator)->tp_iternext(iterator);
}

// One element of each inner iterator. False at the end or with an error.
bool next_of_each(Trace& trace, PyObject* inner, Py_ssize_t first, std::vector<Result>& items) {
  for (Py_ssize_t i = first; i < PyTuple_GET_SIZE(inner); ++i) {
    PyObject* iterator = PyTuple_GET_ITEM(inner, i);
    const Result item = next(&trace, trace.value(iterator));
    if (item.object == nullptr) return false;
    items.push_back(item);
  }
  return true;
}

Result next_of_map(Trace& trace, PyObject* iterator) {
  const Object inner = inner_of(iterator);
  if (!inner) return {advance_plainly(iterator), 0};
  std::vector<Result> items;
  Result result;
  if (next_of_each(trace, inner.get(), 1, items)) {
    std::vector<Value> arguments;
    for (const Result& item : items) arguments.push_back({item.object, item.ref});
    result = call(&trace, trace.value(PyTuple_GET_ITEM(inner.get(), 0)), arguments, nullptr);
  }
  release(items);
  return result;
}

Result next_of_filter(Trace& trace, PyObject* iterator) {
  const Object inner = inner_of(iterator);
  if (!inner) return {advance_plainly(iterator), 0};
  for (;;) {
    std::vector<Result> items;
    if (!next_of_each(trace, inner.get(), 1, items)) return {};
    PyObject* test = PyTuple_GET_ITEM(inner.get(), 0);
    Result good = items[0];
    Py_INCREF(good.object);
    if (test != Py_None && test != reinterpret_cast<PyObject*>(&PyBool_Type)) {
      Py_DECREF(good.object);
      const Value argument{items[0].object, items[0].ref};
      good = call(&trace, trace.value(test), std::span(&argument, 1), nullptr);
      if (good.object == nullptr) {
        release(items);
        return {};
      }
    }
    const int passes = truth(&trace, {good.object, good.ref});
    Py_DECREF(good.object);
    if (passes == 1) return items[0];
    release(items);
    if (passes < 0) return {};
  }
}

bool is_strict(PyObject* zip) {
  const Object state = Object::steal(PyObject_CallMethod(zip, "__reduce__", nullptr));
  if (!state) PyErr_Clear();
  return state && PyTuple_GET_SIZE(state.get()) > 2;
}

// The first `ended` of a strict zip's iterators had an element more than the one behind them, or
// none at all: then the others must have none either.
void check_end(Trace& trace, PyObject* inner, Py_ssize_t ended) {
  const auto complain = [](Py_ssize_t argument, const char* how) {
    PyErr_Format(PyExc_ValueError, "zip() argument %zd is %s than argument%s%zd", argument + 1, how,
                 argument == 1 ? " " : "s 1-", argument);
  };
  if (ended > 0) {
    complain(ended, "shorter");
    return;
  }
  for (Py_ssize_t i = 1; i < PyTuple_GET_SIZE(inner); ++i) {
    const Result item = next(&trace, trace.value(PyTuple_GET_ITEM(inner, i)));
    if (item.object == nullptr && PyErr_Occurred()) return;
    if (item.object == nullptr) continue;
    Py_DECREF(item.object);
    complain(i, "longer");
    return;
  }
}

Result next_of_zip(Trace& trace, PyObject* iterator) {
  const Object inner = inner_of(iterator);
  if (!inner) return {advance_plainly(iterator), 0};
  std::vector<Result> items;
  Result result;
  if (PyTuple_GET_SIZE(inner.get()) == 0) return result;
  if (next_of_each(trace, inner.get(), 0, items)) {
    std::vector<Value> values;
    for (const Result& item : items) values.push_back({item.object, item.ref});
    result = build_tuple(&trace, values);
  } else if (!PyErr_Occurred() && is_strict(iterator)) {
    check_end(trace, inner.get(), static_cast<Py_ssize_t>(items.size()));
  }
  release(items);
  return result;
}

Result next_of_sequence(Trace& trace, PyObject* iterator, Value over, int position) {
  PyObject* item = advance_plainly(iterator);
  if (item == nullptr) {
    trace.guard_length(over);
    return {};
  }
  return {item, trace.read_item(over, position, item)};
}

// touch_dict() has seen to what is in it.
Result next_of_dict(Trace& trace, PyObject* iterator) {
  PyObject* item = advance_plainly(iterator);
  // An item's tuple is kept by the iterator, to be used again.
  return {item, item == nullptr ? 0 : trace.adopt(item, 2)};
}

// The iterator that C code made for it.
Result account_for(Trace& trace, Value iterable, PyObject* iterator) {
  PyObject* object = iterable.object;
  if (iterator == nullptr) {
    trace.guard_type(iterable);
    return {};
  }
  if (iterator == object) return {iterator, iterable.ref};
  if (is_sequence_iterator(iterator) &&
      (!is_constant(object) || has_lazy_elements(trace, iterable))) {
    trace.guard_type(iterable);
    trace.iterator(iterator, iterable);
    return {iterator, trace.ref_of(iterator)};
  }
  if (is_dict_view(object) || PyDict_Check(object)) {
    const Value dict = is_dict_view(object) ? dict_behind(trace, iterable) : iterable;
    touch_dict(trace, dict, iterator);
    if (is_dict_iterator(iterator)) {
      trace.iterator(iterator, dict);
      return {iterator, trace.ref_of(iterator)};
    }
  } else if (is_constant(object)) {
    trace.use(iterable);
  } else if (PyAnySet_Check(object)) {
    trace.own(iterable);
  } else if (trace.is_born(object)) {  // a deque
    trace.guard_type(iterable);
  } else {
    trace.stop(BreakReason::unknown_object, Py_TYPE(object)->tp_name);
  }
  trace.transient(iterator);
  return {iterator, trace.ref_of(iterator)};
}

// enumerate, itertools.product and such keep the tuple that they gave out last, to use it again if
// they can.
bool keeps_its_tuple(PyObject* iterator) {
  static const std::unordered_set<const PyTypeObject*> types{
      &PyEnum_Type,
      &PyDictIterItem_Type,
      known_type(KnownType::product),
      known_type(KnownType::zip_longest),
      known_type(KnownType::combinations),
      known_type(KnownType::combinations_with_replacement),
      known_type(KnownType::permutations),
      known_type(KnownType::pairwise)};
  return types.contains(Py_TYPE(iterator));
}

}  // namespace

Result get_iter(Trace* trace, Value iterable) {
  PyObject* object = iterable.object;
  if (!is_following(trace)) return {PyObject_GetIter(object), 0};
  iterable = behind_proxy(*trace, trace->value(object, iterable.ref));
  object = iterable.object;
  if (PyObject* method = python_method(object, names().iter)) {
    trace->guard_type(iterable);
    const Ref ref = trace->read_type(Py_TYPE(object), names().iter, method);
    const Result iterator = call(trace, {method, ref}, std::span(&iterable, 1), nullptr);
    if (iterator.object == nullptr || PyIter_Check(iterator.object)) return iterator;
    PyErr_Format(PyExc_TypeError, "iter() returned non-iterator of type '%.100s'",
                 Py_TYPE(iterator.object)->tp_name);
    Py_DECREF(iterator.object);
    return {};
  }
  return account_for(*trace, iterable, PyObject_GetIter(object));
}

Result get_storage_iter(Trace& trace, PyTypeObject* owner, Value iterable) {
  return account_for(trace, trace.value(iterable.object, iterable.ref),
                     owner->tp_iter(iterable.object));
}

Result advance(Trace* trace, Value iterator) {
  PyObject* object = iterator.object;
  const auto plainly = [&]() -> Result { return {advance_plainly(object), 0}; };
  if (!is_following(trace)) {
    if (!PyIter_Check(object)) {
      PyErr_Format(PyExc_TypeError, "'%.200s' object is not an iterator", Py_TYPE(object)->tp_name);
      return {};
    }
    return plainly();
  }
  Value over;
  int position;
  if (trace->open_iterator(object) && is_dict_iterator(object))
    touch_dict(*trace, trace->value(iterated_by(object)), object);
  if (trace->iterated(object, &over, &position)) {
    if (!trace->is_born(object)) trace->effect(StepKind::advance, std::span(&iterator, 1));
    if (is_dict_iterator(object)) return next_of_dict(*trace, object);
    if (position < 0) return plainly();  // at its end
    return next_of_sequence(*trace, object, over, position);
  }
  Result result;
  if (PyGen_CheckExact(object)) {
    if (trace->follower->next_generator(*trace, object, &result)) return result;
  } else if (PyObject* method = python_method(object, names().next)) {
    trace->guard_type(iterator);
    const Ref ref = trace->read_type(Py_TYPE(object), names().next, method);
    return call(trace, {method, ref}, std::span(&iterator, 1), nullptr);
  } else if (trace->is_born(object)) {
    if (Py_TYPE(object) == &PyMap_Type && inner_of(object)) return next_of_map(*trace, object);
    if (Py_TYPE(object) == &PyFilter_Type && inner_of(object))
      return next_of_filter(*trace, object);
    if (Py_TYPE(object) == &PyZip_Type && inner_of(object)) return next_of_zip(*trace, object);
    {
      const Transparent transparent(trace);
      result = plainly();
    }
    trace->check_log();
    if (result.object != nullptr && is_match(result.object)) trace->transient(result.object);
    if (result.object != nullptr && PyTuple_CheckExact(result.object)) {
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(result.object); ++i) {
        PyObject* inner =
            PyTuple_GET_ITEM(result.object, i);  // groupby gives a group over the same
        if (is_exactly(inner, KnownType::grouper)) trace->transient(inner);
      }
    }
    if (result.object != nullptr)
      result.ref = trace->adopt(result.object, keeps_its_tuple(object) ? 2 : 1);
    return result;
  }
  trace->stop(BreakReason::iterator, Py_TYPE(object)->tp_name);
  return advance(nullptr, iterator);
}

Result next(Trace* trace, Value iterator) {
  const Result item = advance(trace, iterator);
  if (item.object == nullptr && PyErr_Occurred() != nullptr &&
      PyErr_ExceptionMatches(PyExc_StopIteration))
    PyErr_Clear();
  return item;
}

}  // namespace smelt::bytecode
