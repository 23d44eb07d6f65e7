// Subscripts, membership, and the building of containers.
#include <cmath>

#include "capture/bytecode/cpython/known_types.h"
#include "capture/bytecode/cpython/libraries.h"
#include "capture/bytecode/cpython/names.h"
#include "capture/bytecode/cpython/private_api.h"
#include "capture/bytecode/values/dynamic_tensors.h"
#include "capture/bytecode/values/list_stores.h"
#include "capture/bytecode/values/operations.h"
#include "capture/bytecode/values/sizes.h"

namespace smelt::bytecode {
namespace {

bool is_tensor(PyObject* object) { return tensors().is_tensor(object); }

// Elements of what the trace makes are settled: an atom among them is what it is from now on.
void settle(Trace& trace, Value value) {
  if (is_constant(value.object)) trace.use(value);
}

// Stored and read as the builtin type does it. A subclass of list has another slot for it, since
// list.__getitem__ is a method: what counts is what the class has by that name.
bool has_storage_of(PyObject* object, PyTypeObject& type) {
  return PyType_IsSubtype(Py_TYPE(object), &type) &&
         _PyType_Lookup(Py_TYPE(object), names().getitem) == _PyType_Lookup(&type, names().getitem);
}

PyObject* element(PyObject* sequence, Py_ssize_t i) {
  return PyList_Check(sequence) ? PyList_GET_ITEM(sequence, i) : PyTuple_GET_ITEM(sequence, i);
}

PyMappingMethods* storage_of(PyObject* sequence) {
  return PyList_Check(sequence) ? PyList_Type.tp_as_mapping : PyTuple_Type.tp_as_mapping;
}

// The slice with whole numbers in the place of objects that tell theirs, each of which is asked
// once. Empty with an error set.
Object plain_slice(Trace& trace, PyObject* object) {
  if (is_constant(object)) return Object::share(object);
  const auto* slice = reinterpret_cast<PySliceObject*>(object);
  PyObject* const parts[] = {slice->start, slice->stop, slice->step};
  Object numbers[3];
  const Transparent transparent(&trace, true);
  for (const int i : {2, 0, 1}) {  // CPython's order
    const bool is_plain =
        parts[i] == Py_None || PyLong_CheckExact(parts[i]) || !PyIndex_Check(parts[i]);
    numbers[i] = Object::steal(is_plain ? Py_NewRef(parts[i]) : PyNumber_Index(parts[i]));
    if (!numbers[i]) return {};
  }
  return Object::steal(PySlice_New(numbers[0].get(), numbers[1].get(), numbers[2].get()));
}

Result get_slice(Trace& trace, Value sequence, PyObject* slice) {
  Py_ssize_t start, stop, step;
  if (PySlice_Unpack(slice, &start, &stop, &step) < 0) return {};
  trace.guard_length(sequence);
  const Py_ssize_t count = PySlice_AdjustIndices(Py_SIZE(sequence.object), &start, &stop, step);
  if (has_lazy_elements(trace, sequence)) {
    std::vector<Value> elements;
    for (Py_ssize_t i = 0; i < count; ++i) {
      PyObject* item = element(sequence.object, start + i * step);
      elements.push_back({item, trace.read_item(sequence, start + i * step, item)});
    }
    PyObject* taken = PyObject_GetItem(sequence.object, slice);  // of a torch.Size another one
    return taken == nullptr ? Result{} : made_of(trace, elements, taken);
  }
  for (Py_ssize_t i = 0; i < count && trace.active(); ++i) {
    PyObject* item = element(sequence.object, start + i * step);
    settle(trace, {item, trace.read_item(sequence, start + i * step, item)});
  }
  // Of a torch.Size another one.
  PyObject* result = is_tuple_or_size(sequence.object)
                         ? PyObject_GetItem(sequence.object, slice)
                         : storage_of(sequence.object)->mp_subscript(sequence.object, slice);
  return {result, result == nullptr ? 0 : trace.adopt(result)};
}

Result get_sequence_item(Trace& trace, Value sequence, Value key) {
  trace.use(key);
  trace.guard_type(sequence);
  if (PySlice_Check(key.object)) {
    const Object slice = plain_slice(trace, key.object);
    return slice ? get_slice(trace, sequence, slice.get()) : Result{};
  }
  PyObject* result = storage_of(sequence.object)->mp_subscript(sequence.object, key.object);
  if (result == nullptr) {
    trace.guard_length(sequence);
    return {};
  }
  Py_ssize_t index = PyNumber_AsSsize_t(key.object, nullptr);
  if (index < 0) {
    trace.guard_length(sequence);
    index += Py_SIZE(sequence.object);
  }
  return {result, trace.read_item(sequence, index, result)};
}

Result get_dict_item(Trace& trace, Value dict, Value key) {
  use_key(trace, key);
  trace.guard_type(dict);
  PyObject* found = look_up(trace, dict.object, key.object);
  if (found != nullptr) return {Py_NewRef(found), trace.read_dict(dict, key.object, found)};
  if (PyErr_Occurred()) return {};
  trace.read_absent(dict, key.object);
  if (!PyDict_CheckExact(dict.object)) {
    if (PyObject* method = python_method(dict.object, names().missing)) {
      const Value arguments[] = {dict, key};
      return call_special(trace, method, names().missing, arguments);
    }
    static PyObject* factory_name = PyUnicode_InternFromString("default_factory");
    if (Object factory = Object::steal(PyObject_GetAttr(dict.object, factory_name));
        factory && factory.get() != Py_None) {
      const Value make = trace.is_born(dict.object)
                             ? trace.value(factory.get())
                             : Value{factory.get(), trace.read(NodeKind::attribute, dict,
                                                               factory_name, 0, factory.get())};
      const Result made = call(&trace, make, {}, nullptr);
      if (made.object == nullptr) return {};
      if (!set_item(&trace, dict, key, {made.object, made.ref})) {
        Py_DECREF(made.object);
        return {};
      }
      return made;
    }
    PyErr_Clear();
  }
  return {PyObject_GetItem(dict.object, key.object), 0};  // raises
}

Result get_tensor_item(Trace& trace, Value tensor, Value key) {
  const bool is_open = use_in_op(trace, tensor);
  if (trace.sizes.any() && code_among(trace, std::span(&key, 1)) == ArgumentCode::none) {
    PyObject* found = call_with_index(trace, tensor, key, [&](PyObject* given) {
      const Unfollowed unfollowed(&trace);
      const bool is_place = PyLong_CheckExact(key.object) && !PyLong_CheckExact(given);
      // A stand-in: indexing would ask it for its value.
      return is_place ? PyObject_CallMethod(tensor.object, "select", "iO", 0, given)
                      : PyObject_GetItem(tensor.object, given);
    });
    trace.check_log();
    return {found, found == nullptr ? 0 : trace.adopt(found)};
  }
  const ArgumentCode code = code_among(trace, std::span(&key, 1));
  if ((use_in_op(trace, key) || is_open) && !may_index(trace, tensor.object, key.object))
    stop_at_shape(trace);
  PyObject* result;
  if (code == ArgumentCode::followed) {
    const Transparent transparent(&trace, true);
    result = PyObject_GetItem(tensor.object, key.object);
  } else {
    const Unfollowed unfollowed(&trace);
    result = PyObject_GetItem(tensor.object, key.object);
  }
  trace.check_log();
  return {result, result == nullptr ? 0 : trace.adopt(result)};
}

Result make_new(Trace* trace, StepKind kind, std::span<const Value> items, PyObject* object) {
  if (object == nullptr || !is_following(trace)) return {object, 0};
  return {object, trace->make(kind, items, object)};
}

bool store_tensor_item(Trace& trace, Value tensor, Value key, Value item) {
  use_in_op(trace, tensor);
  if (code_among(trace, std::span(&key, 1)) != ArgumentCode::none)
    trace.stop(BreakReason::c_callback, "__index__");  // of the store it would be told twice
  if (trace.sizes.any()) {
    const Object stored = Object::steal(call_with_index(trace, tensor, key, [&](PyObject* given) {
      return call_on_tensors(trace, std::span(&item, 1), [&](std::span<const Value> taken) {
        const int result = PyObject_SetItem(tensor.object, given, taken[0].object);
        return result == 0 ? Py_NewRef(Py_None) : nullptr;
      });
    }));
    trace.check_log();
    return static_cast<bool>(stored);
  }
  use_in_op(trace, key);
  const bool puts = is_put(trace, tensor.object, key.object, item.object);
  if (!may_index(trace, tensor.object, key.object, puts ? nullptr : item.object))
    stop_at_shape(trace);
  const Object done =
      Object::steal(call_on_tensors(trace, std::span(&item, 1), [&](std::span<const Value> given) {
        if (puts)
          return PyObject_CallMethod(tensor.object, "index_put_", "(O)O", key.object,
                                     given[0].object);
        const int result = PyObject_SetItem(tensor.object, key.object, given[0].object);
        return result == 0 ? Py_NewRef(Py_None) : nullptr;
      }));
  trace.check_log();
  return static_cast<bool>(done);
}

bool is_whole_slice(PyObject* key) {
  if (!PySlice_Check(key)) return false;
  const auto* slice = reinterpret_cast<PySliceObject*>(key);
  return slice->start == Py_None && slice->stop == Py_None && slice->step == Py_None;
}

// Whether it is there, to be deleted.
bool depend_on_key(Trace& trace, Value dict, Value key) {
  PyObject* found = look_up(trace, dict.object, key.object);
  PyErr_Clear();
  if (found != nullptr)
    trace.read_dict(dict, key.object, found);
  else
    trace.read_absent(dict, key.object);
  return found != nullptr;
}

// Before a store: writes down what will be done. False if it has been done already, with *ok.
bool prepare_store(Trace& trace, Value container, Value key, Value item, bool* ok) {
  PyObject* object = container.object;
  PyObject* name = item.object ? names().setitem : names().delitem;
  if (PyObject* method = python_method(object, name)) {
    const Value arguments[] = {container, key, item};
    const Result result =
        call_special(trace, method, name, std::span(arguments, item.object ? 3 : 2));
    *ok = result.object != nullptr;
    Py_XDECREF(result.object);
    return false;
  }
  if (container.ref == 0) container.ref = trace.ref_of(object);
  const bool is_list = PyList_Check(object) || (is_deque(object) && trace.is_born(object));
  if (!is_list && shows_when_hashed(key.object)) {
    trace.stop(BreakReason::c_callback, std::string("a method of ") + Py_TYPE(key.object)->tp_name);
    return true;
  }
  if (!(is_list || PyDict_Check(object)) || (container.ref == 0 && !PyDict_CheckExact(object))) {
    trace.stop(BreakReason::mutation, Py_TYPE(object)->tp_name);
    return true;
  }
  if (const auto done = is_list ? put_in_list(trace, container, key, item) : std::nullopt) {
    *ok = *done;
    return false;
  }
  if (is_list) {
    if (item.object == nullptr && PyList_CheckExact(object) && is_whole_slice(key.object))
      trace.drop_contents(container);
    else
      trace.own(container);
    trace.use(key);
    if (item.object != nullptr) {
      if (PySlice_Check(key.object)) {
        std::vector<Result> items;  // a slice takes the elements, whatever they come in
        if (!PyList_CheckExact(item.object) && !PyTuple_CheckExact(item.object)) {
          trace.stop(BreakReason::mutation, "a slice of a list");
          return true;
        }
        unpack(&trace, item, items);
        for (const Result& one : items) {
          settle(trace, {one.object, one.ref});
          Py_DECREF(one.object);
        }
      }
      settle(trace, item);
    }
  } else {
    use_key(trace, key);
  }
  if (item.object == nullptr && PyDict_Check(object) && !depend_on_key(trace, container, key))
    return true;
  const Value inputs[] = {container, key, item};
  trace.effect(item.object ? StepKind::set_item : StepKind::del_item,
               std::span(inputs, item.object ? 3 : 2));
  return true;
}

constexpr size_t kFewElements = 32;

// Is in a list that it is in, and equal to nothing.
bool is_nan(PyObject* object) {
  return PyFloat_Check(object) && std::isnan(PyFloat_AS_DOUBLE(object));
}

// A number that may be another one in the next call is none of these: known by comparing it with
// each, so that it may be any that is not. False: it is one of them, or they can't be told apart
// so.
bool is_none_of(Trace& trace, Value number, std::span<const Value> elements) {
  if (!trace.is_runtime_scalar(number) || elements.size() > kFewElements) return false;
  for (const Value& element : elements) {
    if (!is_atom(element.object) || is_nan(element.object)) return false;
    if (PyObject_RichCompareBool(element.object, number.object, Py_EQ) != 0) return false;
  }
  for (const Value& element : elements) {
    if (!PyLong_Check(element.object) && !PyFloat_Check(element.object)) {
      trace.use(element);
      continue;
    }
    const Result differs = compare(&trace, Py_NE, number, element);
    const Object held = Object::steal(differs.object);
    if (differs.object == nullptr || truth(&trace, {differs.object, differs.ref}) != 1)
      return false;
  }
  return true;
}

bool is_no_key_of(Trace& trace, Value number, Value dict) {
  if (!trace.is_runtime_scalar(number)) return false;
  std::vector<Value> keys;
  PyObject *key, *item;
  Py_ssize_t at = 0;
  while (PyDict_Next(dict.object, &at, &key, &item)) keys.push_back({key, 0});
  if (!is_none_of(trace, number, keys)) return false;
  trace.guard_keys(dict);
  return true;
}

bool is_no_item_of(Trace& trace, Value number, Value sequence) {
  const bool is_plain = PyList_CheckExact(sequence.object) || PyTuple_CheckExact(sequence.object);
  if (!is_plain || !trace.is_runtime_scalar(number)) return false;
  std::vector<Result> items;
  unpack(&trace, sequence, items);
  std::vector<Value> elements;
  for (const Result& item : items) elements.push_back({item.object, item.ref});
  const bool none = is_none_of(trace, number, elements);
  release(items);
  return none;
}

// As C finds it: by going through all elements, or by hash.
int contains_by_elements(Trace& trace, Value container, Value item, PyTypeObject* owner) {
  PyObject* object = container.object;
  const bool has_slot =
      owner->tp_as_sequence != nullptr && owner->tp_as_sequence->sq_contains != nullptr;
  if (is_no_item_of(trace, item, container)) {
    return 0;
  } else if (PyDictViewSet_Check(object) || !has_slot) {
    const Result iterator = get_iter(&trace, container);
    if (iterator.object == nullptr) {
      if (PyErr_ExceptionMatches(PyExc_TypeError))
        PyErr_Format(PyExc_TypeError, "argument of type '%.200s' is not iterable",
                     Py_TYPE(object)->tp_name);
      return -1;
    }
    const Object held = Object::steal(iterator.object);
    for (;;) {
      const Result one = next(&trace, {iterator.object, iterator.ref});
      if (one.object == nullptr) return PyErr_Occurred() ? -1 : 0;
      const Object element = Object::steal(one.object);
      const bool same = one.object == item.object;
      const Result equal = same ? is_same(&trace, {one.object, one.ref}, item, false)
                                : compare(&trace, Py_EQ, {one.object, one.ref}, item);
      const int found = equal.object == nullptr ? -1 : truth(&trace, {equal.object, equal.ref});
      Py_XDECREF(equal.object);
      if (found != 0) return found;
    }
  } else {
    trace.use(container);
    if (PyAnySet_Check(object))
      use_key(trace, item);
    else
      trace.use(item);
    guard_owners(trace, object);
    guard_owners(trace, item.object);
  }
  int found;
  {
    const Transparent transparent(&trace, true);
    found = has_slot ? owner->tp_as_sequence->sq_contains(object, item.object)
                     : PySequence_Contains(object, item.object);
  }
  trace.check_log();
  return found;
}

// A tensor's hash is its address, as long as its class has no other: to follow
// torch.Tensor.__hash__ for each of a thousand parameters would come to the same.
bool hash_is_address(Trace& trace, PyObject* key) {
  if (!is_tensor(key)) return false;
  PyTypeObject* type = Py_TYPE(key);
  PyObject* method = python_method(key, names().hash);
  if (method == nullptr || !is_function_of(method, "torch._tensor", "Tensor.__hash__"))
    return false;
  trace.read_type(type, names().hash, method);
  return true;
}

}  // namespace

Object as_tuple(std::span<const Value> values) {
  Object tuple = Object::steal(PyTuple_New(static_cast<Py_ssize_t>(values.size())));
  for (size_t i = 0; tuple && i < values.size(); ++i)
    PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), Py_NewRef(values[i].object));
  return tuple;
}

PyObject* look_up(Trace& trace, PyObject* dict, PyObject* key) {
  const Repeated repeated(&trace);
  if (!hash_is_address(trace, key)) return PyDict_GetItemWithError(dict, key);
  return _PyDict_GetItem_KnownHash(dict, key, reinterpret_cast<Py_hash_t>(key));
}

Value behind_proxy(Trace& trace, Value proxy) {
  struct Proxy {
    PyObject_HEAD PyObject* mapping;
  };
  if (Py_TYPE(proxy.object) != &PyDictProxy_Type) return proxy;
  PyObject* mapping = reinterpret_cast<Proxy*>(proxy.object)->mapping;
  if (!PyDict_CheckExact(mapping) && !PyODict_CheckExact(mapping)) return proxy;
  if (!trace.views.contains(proxy.object)) {
    if (trace.is_born(proxy.object)) {  // types.MappingProxyType(d)
      const Value dict = trace.value(mapping);
      return dict.ref != 0 ? dict : proxy;
    }
    if (trace.ref_of(proxy.object) == 0) return proxy;
    trace.guard_same(proxy);  // it shows the same dict as long as it is there
  }
  return {mapping, trace.object_behind(mapping)};
}

Result storage_contains(Trace& trace, PyTypeObject* owner, Value container, Value item) {
  container = trace.value(container.object, container.ref);
  trace.guard_type(container);
  const int found =
      contains_by_elements(trace, container, trace.value(item.object, item.ref), owner);
  return {found < 0 ? nullptr : PyBool_FromLong(found), 0};
}

Result get_storage_item(Trace& trace, Value container, Value key) {
  container = trace.value(container.object, container.ref);
  if (PyDict_Check(container.object)) return get_dict_item(trace, container, key);
  return get_sequence_item(trace, container, trace.value(key.object, key.ref));
}

Result get_item(Trace* trace, Value container, Value key) {
  if (!is_following(trace)) return {PyObject_GetItem(container.object, key.object), 0};
  container = behind_proxy(*trace, trace->value(container.object, container.ref));
  key = trace->value(key.object, key.ref);
  PyObject* object = container.object;
  if (is_tensor(object) && has_own_method(*trace, object, names().getitem))
    return get_tensor_item(*trace, container, key);
  if (PyObject* method = python_method(object, names().getitem)) {
    const Value arguments[] = {container, key};
    return call_special(*trace, method, names().getitem, arguments);
  }
  if (PyType_Check(object)) {
    static PyObject* const class_getitem = PyUnicode_InternFromString("__class_getitem__");
    PyObject* found = _PyType_Lookup(reinterpret_cast<PyTypeObject*>(object), class_getitem);
    const bool is_class_method = found != nullptr && Py_TYPE(found) == &PyClassMethod_Type;
    const Object function =
        is_class_method ? Object::steal(PyObject_GetAttr(found, names().func)) : Object();
    // Code of the user's: not what makes generic types, in C or of typing.
    if (function && PyFunction_Check(function.get()) && !is_in_module(function.get(), "typing")) {
      const Result method = get_attribute(trace, container, class_getitem);
      const Object held = Object::steal(method.object);
      if (!held) return {};
      return call(trace, {held.get(), method.ref}, {&key, 1}, nullptr);
    }
  }
  const bool is_index = PyLong_Check(key.object) || PySlice_Check(key.object);
  if (is_index && !is_constant(object) &&
      (has_storage_of(object, PyList_Type) || has_storage_of(object, PyTuple_Type))) {
    if (!PyList_CheckExact(object) && !PyTuple_CheckExact(object))
      trace->read_type(Py_TYPE(object), names().getitem,
                       _PyType_Lookup(Py_TYPE(object), names().getitem));
    return get_sequence_item(*trace, container, key);
  }
  if (is_tuple_or_size(object) && is_index && container.ref != 0)
    return get_sequence_item(*trace, container, key);
  if (PyDict_Check(object)) return get_dict_item(*trace, container, key);
  trace->use(container);
  trace->use(key);
  if ((is_deque(object) || is_match(object)) && trace->is_born(object)) {
    PyObject* item = PyObject_GetItem(object, key.object);
    return {item, item == nullptr ? 0 : trace->adopt(item)};
  }
  if (!is_constant(object))
    trace->stop(BreakReason::c_function, std::string(Py_TYPE(object)->tp_name) + "[...]");
  PyObject* result;
  {
    const Unfollowed unfollowed(trace);  // list[int], Generic[T]
    result = PyObject_GetItem(object, key.object);
  }
  return {result, result == nullptr ? 0 : trace->adopt(result)};
}

bool set_item(Trace* trace, Value container, Value key, Value item) {
  if (is_following(trace)) {
    if (is_tensor(container.object) && has_own_method(*trace, container.object, names().setitem))
      return store_tensor_item(*trace, container, key, item);
    bool ok;
    if (!prepare_store(*trace, container, key, item, &ok)) return ok;
  }
  const Repeated repeated(trace);
  if (PyObject_SetItem(container.object, key.object, item.object) == 0) return true;
  if (trace != nullptr) trace->stop(BreakReason::raised, "setting an item");
  return false;
}

bool set_storage_item(Trace* trace, Value dict, Value key, Value item) {
  if (PyODict_Check(dict.object) || python_method(dict.object, names().setitem) == nullptr)
    return set_item(trace, dict, key, item);
  if (is_following(trace)) {
    use_key(*trace, key);
    settle(*trace, item);
    trace->own(dict);
    static PyObject* store = _PyType_Lookup(&PyDict_Type, names().setitem);
    const Value inputs[] = {{store, 0}, dict, key, item};
    trace->effect_call(inputs, nullptr);
  }
  const Repeated repeated(trace);
  return PyDict_SetItem(dict.object, key.object, item.object) == 0;
}

bool delete_item(Trace* trace, Value container, Value key) {
  bool ok;
  if (is_following(trace) && !prepare_store(*trace, container, key, {}, &ok)) return ok;
  const Repeated repeated(trace);
  if (PyObject_DelItem(container.object, key.object) == 0) return true;
  if (trace != nullptr) trace->stop(BreakReason::raised, "deleting an item");
  return false;
}

Result contains(Trace* trace, Value container, Value item, bool negate) {
  int found;
  if (!is_following(trace)) {
    found = PySequence_Contains(container.object, item.object);
  } else {
    container = behind_proxy(*trace, container);
    PyObject* object = container.object;
    if (PyObject* method = python_method(object, names().contains)) {
      const Value arguments[] = {container, item};
      const Result result = call_special(*trace, method, names().contains, arguments);
      if (result.object == nullptr) return {};
      Object held = Object::steal(result.object);
      found = truth(trace, {held.get(), result.ref});
    } else if (PyDict_Check(object) && _PyType_Lookup(Py_TYPE(object), names().contains) ==
                                           _PyType_Lookup(&PyDict_Type, names().contains)) {
      trace->guard_type(container);
      if (is_no_key_of(*trace, item, container)) return {Py_NewRef(negate ? Py_True : Py_False), 0};
      use_key(*trace, item);
      PyObject* present = look_up(*trace, object, item.object);
      found = present != nullptr ? 1 : (PyErr_Occurred() ? -1 : 0);
      if (found == 1)
        trace->read_dict(container, item.object, present);
      else if (found == 0)
        trace->read_absent(container, item.object);
    } else {
      found = contains_by_elements(*trace, container, item, Py_TYPE(object));
    }
  }
  if (found < 0) return {};
  return {Py_NewRef((found == 1) != negate ? Py_True : Py_False), 0};
}

Result build_tuple(Trace* trace, std::span<const Value> items) {
  return make_new(trace, StepKind::build_tuple, items, as_tuple(items).release());
}

Result build_list(Trace* trace, std::span<const Value> items) {
  PyObject* list = PyList_New(static_cast<Py_ssize_t>(items.size()));
  for (size_t i = 0; list != nullptr && i < items.size(); ++i)
    PyList_SET_ITEM(list, static_cast<Py_ssize_t>(i), Py_NewRef(items[i].object));
  return make_new(trace, StepKind::build_list, items, list);
}

Result build_set(Trace* trace, std::span<const Value> items) {
  Object set = Object::steal(PySet_New(nullptr));
  for (const Value& item : items) {
    if (is_following(trace)) use_key(*trace, item);
    const Repeated repeated(trace);
    if (PySet_Add(set.get(), item.object) < 0) return {};
  }
  return make_new(trace, StepKind::build_set, items, set.release());
}

Result build_map(Trace* trace, std::span<const Value> items) {
  Object dict = Object::steal(PyDict_New());
  for (size_t i = 0; i + 1 < items.size(); i += 2) {
    if (is_following(trace)) use_key(*trace, items[i]);
    const Repeated repeated(trace);
    if (PyDict_SetItem(dict.get(), items[i].object, items[i + 1].object) < 0) return {};
  }
  return make_new(trace, StepKind::build_map, items, dict.release());
}

Result build_slice(Trace* trace, std::span<const Value> parts) {
  PyObject* slice =
      PySlice_New(parts[0].object, parts[1].object, parts.size() > 2 ? parts[2].object : nullptr);
  if (slice == nullptr || !is_following(trace)) return {slice, 0};
  for (const Value& part : parts)
    if (is_constant(part.object) && !trace->take_as_size(part.ref)) trace->use(part);
  return make_new(trace, StepKind::build_slice, parts, slice);
}

bool list_append(Trace* trace, Value list, Value item) {
  if (is_following(trace)) {
    if (!trace->is_lazy_number(item) && !trace->is_born(item.object)) settle(*trace, item);
    const Value inputs[] = {list, item};
    trace->effect(StepKind::list_append, inputs);
  }
  return PyList_Append(list.object, item.object) == 0;
}

namespace {

// A list or tuple that is filled asks how much there will be: by __len__, or by __length_hint__.
bool ask_length(Trace& trace, Value iterable) {
  static PyObject* const hint = PyUnicode_InternFromString("__length_hint__");
  for (PyObject* name : {names().len, hint}) {
    PyObject* method =
        tensors().is_tensor(iterable.object) ? nullptr : python_method(iterable.object, name);
    if (method == nullptr) continue;
    Result length = call_special(trace, method, name, std::span(&iterable, 1));
    if (length.object != nullptr && name == hint && length.object != Py_NotImplemented &&
        !PyLong_Check(length.object)) {
      trace.stop(BreakReason::exception, text_of(name));
      PyErr_Format(PyExc_TypeError, "__length_hint__ must be an integer, not %.100s",
                   Py_TYPE(length.object)->tp_name);
      Py_CLEAR(length.object);
      return false;
    }
    const bool ok = length.object != nullptr &&
                    (length.object == Py_NotImplemented || check_length(trace, &length));
    Py_XDECREF(length.object);
    if (ok) return true;
    if (!PyErr_ExceptionMatches(PyExc_TypeError)) return false;
    PyErr_Clear();
  }
  return true;
}

}  // namespace

bool list_extend(Trace* trace, Value list, Value items) {
  if (!is_following(trace)) {
    Object none =
        Object::steal(_PyList_Extend(reinterpret_cast<PyListObject*>(list.object), items.object));
    return static_cast<bool>(none);
  }
  if (items.object == list.object || PyList_CheckExact(items.object) ||
      is_tuple_or_size(items.object)) {
    std::vector<Result> all;
    bool ok = unpack(trace, items, all);
    for (const Result& item : all) {
      ok = ok && list_append(trace, list, {item.object, item.ref});
      Py_DECREF(item.object);
    }
    return ok;
  }
  const Result iterator = get_iter(trace, items);
  if (iterator.object == nullptr) return false;
  const Object held = Object::steal(iterator.object);
  if (!ask_length(*trace, items)) return false;
  for (;;) {
    const Result item = next(trace, {iterator.object, iterator.ref});
    if (item.object == nullptr) return PyErr_Occurred() == nullptr;
    const bool ok = list_append(trace, list, {item.object, item.ref});
    Py_DECREF(item.object);
    if (!ok) return false;
  }
}

bool set_add(Trace* trace, Value set, Value item) {
  if (is_following(trace)) {
    use_key(*trace, item);
    trace->own(set);
    static PyObject* add = PyObject_GetAttrString(reinterpret_cast<PyObject*>(&PySet_Type), "add");
    const Value inputs[] = {{add, 0}, set, item};
    trace->effect_call(inputs, nullptr);
  }
  const Repeated repeated(trace);
  return PySet_Add(set.object, item.object) == 0;
}

bool set_update(Trace* trace, Value set, Value items) {
  if (!is_following(trace)) return _PySet_Update(set.object, items.object) == 0;
  std::vector<Result> all;
  bool ok = unpack(trace, items, all);
  for (const Result& item : all) {
    ok = ok && set_add(trace, set, {item.object, item.ref});
    Py_DECREF(item.object);
  }
  return ok;
}

bool update_by_keys(Trace& trace, Value dict, Value mapping, Value keys_method) {
  const Result keys = call(&trace, keys_method, {}, nullptr);
  if (keys.object == nullptr) return false;
  const Object held_keys = Object::steal(keys.object);
  std::vector<Result> all;
  bool ok = unpack(&trace, {keys.object, keys.ref}, all);
  for (const Result& key : all) {
    const Result item = ok ? get_item(&trace, mapping, {key.object, key.ref}) : Result{};
    ok = ok && item.object != nullptr &&
         set_storage_item(&trace, dict, {key.object, key.ref}, {item.object, item.ref});
    Py_XDECREF(item.object);
    Py_DECREF(key.object);
  }
  return ok;
}

namespace {

// C goes by the storage of a dict unless its class iterates in another way: an OrderedDict has an
// order of its own, and its class may have a __getitem__.
bool is_merged_by_keys(PyObject* dict) { return Py_TYPE(dict)->tp_iter != PyDict_Type.tp_iter; }

}  // namespace

bool dict_update(Trace* trace, Value dict, Value other) {
  if (is_following(trace)) {
    other = behind_proxy(*trace, other);
    if (!PyDict_Check(other.object)) {
      trace->stop(BreakReason::mutation, "a dict");
    } else if (has_key_that_shows(other.object)) {
      trace->stop(BreakReason::c_callback, "the keys of a dict");
    } else if (is_merged_by_keys(other.object)) {
      const Result method = get_attribute(trace, other, names().keys);
      const Object held = Object::steal(method.object);
      return held && update_by_keys(*trace, dict, other, {method.object, method.ref});
    } else {
      trace->guard_keys(other);
      Object copy = Object::steal(PyDict_Copy(other.object));
      PyObject *key, *item;
      Py_ssize_t at = 0;
      while (PyDict_Next(copy.get(), &at, &key, &item)) {
        const Value stored{item, trace->read_dict(other, key, item)};
        if (!set_storage_item(trace, dict, {key, trace->ref_of(key)}, stored)) return false;
      }
      return true;
    }
  }
  if (!PyODict_Check(dict.object)) return PyDict_Update(dict.object, other.object) == 0;
  static PyObject* const update = PyUnicode_InternFromString("update");
  PyObject* method = _PyType_Lookup(&PyODict_Type, update);
  PyObject* const arguments[] = {dict.object, other.object};
  return static_cast<bool>(Object::steal(PyObject_Vectorcall(method, arguments, 2, nullptr)));
}

bool dict_merge(Trace* trace, Value dict, Value other) {
  const bool unique = [&] {
    if (!is_following(trace) || !PyDict_Check(other.object)) return false;
    if (is_merged_by_keys(other.object) && python_method(other.object, names().keys) != nullptr)
      return false;
    PyObject *key, *item;
    Py_ssize_t at = 0;
    while (PyDict_Next(other.object, &at, &key, &item))
      if (PyDict_Contains(dict.object, key) != 0 || !PyUnicode_Check(key)) return false;
    return true;
  }();
  if (unique) return dict_update(trace, dict, other);
  if (is_following(trace)) trace->stop(BreakReason::mutation, "a dict of keyword arguments");
  return _PyDict_MergeEx(dict.object, other.object, 2) == 0;
}

Result list_to_tuple(Trace* trace, Value list) {
  if (!is_following(trace)) return {PyList_AsTuple(list.object), 0};
  std::vector<Result> items;
  unpack(trace, list, items);
  std::vector<Value> values;
  for (const Result& item : items) values.push_back({item.object, item.ref});
  const Result tuple = build_tuple(trace, values);
  release(items);
  return tuple;
}

bool unpack(Trace* trace, Value iterable, std::vector<Result>& items, bool sized) {
  PyObject* object = iterable.object;
  if (PyList_CheckExact(object) || is_tuple_or_size(object)) {
    if (is_following(trace)) trace->guard_length(iterable);
    for (Py_ssize_t i = 0; i < Py_SIZE(object); ++i) {
      PyObject* item = element(object, i);
      const Ref ref = is_following(trace) ? trace->read_item(iterable, i, item) : 0;
      items.push_back({Py_NewRef(item), ref});
    }
    return true;
  }
  const Result iterator = get_iter(trace, iterable);
  if (iterator.object == nullptr) return false;
  Object held = Object::steal(iterator.object);
  if (sized && trace != nullptr && !ask_length(*trace, iterable)) return false;
  for (;;) {
    const Result item = next(trace, {iterator.object, iterator.ref});
    if (item.object == nullptr) return PyErr_Occurred() == nullptr;
    items.push_back(item);
  }
}

}  // namespace smelt::bytecode
