#include "capture/bytecode/builtins/builtin_call.h"
#include "capture/bytecode/cpython/known_types.h"

#include <algorithm>
#include <string_view>
#include <unordered_set>

#include "capture/bytecode/cpython/names.h"

namespace smelt::bytecode {

bool BuiltinCall::plainly(Result* result) {
  {
    const Transparent transparent(&trace, true);
    result->object = call_plainly(callee.object, arguments, keywords);
  }
  trace.check_log();
  if (result->object != nullptr) result->ref = trace.adopt(result->object);
  return true;
}

bool BuiltinCall::by_library(Result* result) {
  if (!can_use_all()) return false;
  for (const Value& v : arguments) trace.use(v);
  {
    const Unfollowed unfollowed(&trace);
    result->object = call_plainly(callee.object, arguments, keywords);
  }
  trace.check_log();
  if (result->object != nullptr) result->ref = trace.adopt(result->object);
  return true;
}

bool BuiltinCall::can_use_all() const {
  for (const Value& v : arguments) {
    if (PyFunction_Check(v.object)) return false;  // would be called back
    const bool of_constants = is_constant(v.object) || PyList_CheckExact(v.object) ||
                              PyTuple_CheckExact(v.object) || PyDict_CheckExact(v.object) ||
                              PyAnySet_Check(v.object);
    if (!of_constants) return false;
  }
  return true;
}

bool BuiltinCall::on_constants(Result* result) {
  if (!can_use_all()) return false;
  for (const Value& v : arguments) trace.use(v);
  return plainly(result);
}

bool BuiltinCall::through_elements(Result* result) {
  for (const Value& v : arguments)
    if (!touch(v)) return false;
  {
    const Transparent transparent(&trace, true);
    result->object = call_plainly(callee.object, arguments, keywords);
  }
  trace.check_log();
  if (result->object != nullptr) result->ref = trace.adopt(result->object);
  return true;
}

bool BuiltinCall::build(Result* result, Result (*make)(Trace*, std::span<const Value>)) {
  if (has_keywords() || count() > 1) return plainly(result);
  std::vector<Result> items;
  if (count() == 1 && !unpack(&trace, argument(0), items, make != &build_set)) {
    for (const Result& item : items) Py_DECREF(item.object);
    return true;
  }
  std::vector<Value> values;
  for (const Result& item : items) values.push_back({item.object, item.ref});
  *result = make(&trace, values);
  for (const Result& item : items) Py_DECREF(item.object);
  return true;
}

bool BuiltinCall::update_from_pairs(Value dict, Value pairs) {
  std::vector<Result> items;
  bool ok = unpack(&trace, pairs, items);
  Py_ssize_t index = 0;
  for (const Result& item : items) {
    std::vector<Result> pair;
    const bool ok_before = ok;
    if (ok) ok = unpack(&trace, {item.object, item.ref}, pair);
    if (ok_before && !ok && PyErr_ExceptionMatches(PyExc_TypeError))
      PyErr_Format(PyExc_TypeError,
                   "cannot convert dictionary update sequence element #%zd to a sequence", index);
    if (ok && pair.size() != 2) {
      PyErr_Format(PyExc_ValueError,
                   "dictionary update sequence element #%zd has length %zd; 2 is required", index,
                   static_cast<Py_ssize_t>(pair.size()));
      ok = false;
    }
    ++index;
    if (ok)
      ok = set_storage_item(&trace, dict, {pair[0].object, pair[0].ref},
                            {pair[1].object, pair[1].ref});
    for (const Result& part : pair) Py_DECREF(part.object);
    Py_DECREF(item.object);
  }
  return ok;
}

// dict(x), d.update(x) for an x that has keys().
bool BuiltinCall::update_from_mapping(Value dict, Value mapping) {
  mapping = behind_proxy(trace, mapping);
  if (PyDict_Check(mapping.object)) return dict_update(&trace, dict, mapping);
  const Result method = get_attribute(&trace, mapping, names().keys);
  if (method.object == nullptr) {
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return false;
    PyErr_Clear();
    return update_from_pairs(dict, mapping);
  }
  const Object held_method = Object::steal(method.object);
  return update_by_keys(trace, dict, mapping, {method.object, method.ref});
}

bool BuiltinCall::touch(Value v) {
  if (is_constant(v.object)) {
    trace.use(v);
    return true;
  }
  if (PyList_CheckExact(v.object) || PyTuple_Check(v.object) || PyDictItems_Check(v.object) ||
      PyDictValues_Check(v.object) || PyDictKeys_Check(v.object)) {
    if (!PyList_CheckExact(v.object) && !PyTuple_CheckExact(v.object)) {
      const Result iterator = get_iter(&trace, v);  // looks at all of a dict's elements
      Py_XDECREF(iterator.object);
      return iterator.object != nullptr;
    }
    std::vector<Result> items;
    if (!unpack(&trace, v, items)) return false;
    bool known = true;
    for (const Result& item : items) {
      if (is_constant(item.object))
        trace.use({item.object, item.ref});
      else
        known = known && trace.is_tracked(item.object);
      const Value inside{item.object, item.ref};
      trace.settle_inside(std::span(&inside, 1));
      Py_DECREF(item.object);
    }
    return known;
  }
  if (PyDict_CheckExact(v.object) || PyAnySet_Check(v.object) ||
      (is_deque(v.object) && trace.is_born(v.object))) {
    trace.use(v);
    return trace.active();
  }
  if (PyIter_Check(v.object) && trace.is_born(v.object)) return touch_iterator(v);
  // Its __iter__ or __getitem__ is called back.
  return trace.is_tracked(v.object) && (python_method(v.object, names().iter) != nullptr ||
                                        python_method(v.object, names().getitem) != nullptr);
}

// What an iterator of C's goes over; generators and the like are followed.
bool BuiltinCall::touch_iterator(Value v) {
  Value over;
  int position;
  if (trace.iterated(v.object, &over, &position)) return touch(over);
  PyTypeObject* type = Py_TYPE(v.object);
  if (type != &PyZip_Type && type != &PyMap_Type && type != &PyFilter_Type) return true;
  const Object state = Object::steal(PyObject_CallMethod(v.object, "__reduce__", nullptr));
  if (!state || !PyTuple_Check(PyTuple_GET_ITEM(state.get(), 1))) {
    PyErr_Clear();
    return false;
  }
  PyObject* inner = PyTuple_GET_ITEM(state.get(), 1);
  for (Py_ssize_t i = type == &PyZip_Type ? 0 : 1; i < PyTuple_GET_SIZE(inner); ++i)
    if (!touch(trace.value(PyTuple_GET_ITEM(inner, i)))) return false;
  if (type == &PyZip_Type) return true;
  PyObject* function = PyTuple_GET_ITEM(inner, 0);
  return function == Py_None || use_function(trace.value(function));
}

bool BuiltinCall::use_function(Value function) {
  static const std::unordered_set<std::string_view> kNumeric{"abs", "pow", "round", "divmod"};
  if (may_call_back(trace, function)) return true;
  if (function.object == Py_None || function.object == reinterpret_cast<PyObject*>(&PyBool_Type)) {
    trace.use(function);
    return true;
  }
  if (!PyCFunction_Check(function.object)) return false;
  // Functions of their arguments alone, which are known.
  PyObject* self = PyCFunction_GET_SELF(function.object);
  const char* module = self != nullptr && PyModule_Check(self) ? PyModule_GetName(self) : nullptr;
  const std::string_view name = module == nullptr ? "" : module;
  trace.use(function);
  const char* own = reinterpret_cast<PyCFunctionObject*>(function.object)->m_ml->ml_name;
  if (name == "builtins") return kNumeric.contains(own);
  return (name == "_operator" && is_operation(own)) || name == "math";
}

bool touch_iterator(Trace& trace, Value iterator) {
  if (!trace.is_born(iterator.object))
    return python_method(iterator.object, names().next) != nullptr;
  BuiltinCall none{trace, {}, {}, nullptr};
  return none.touch_iterator(iterator);
}

Result BuiltinCall::call_special(PyObject* method, PyObject* name, Value self) {
  return bytecode::call_special(trace, method, name, std::span(&self, 1));
}

}  // namespace smelt::bytecode
