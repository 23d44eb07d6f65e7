#include "capture/bytecode/values/list_stores.h"

#include <algorithm>

#include "capture/bytecode/values/sizes.h"

namespace smelt::bytecode {
namespace {

constexpr Py_ssize_t kFew = 32;  // elements that are moved one by one

bool is_made_list(Trace& trace, Value list) {
  return trace.active() && PyList_CheckExact(list.object) && trace.is_born(list.object);
}

bool has_few_lazy(Trace& trace, Value list) {
  return is_made_list(trace, list) && PyList_GET_SIZE(list.object) <= kFew &&
         has_lazy_elements(trace, list);
}

bool put(Trace& trace, Value list, Py_ssize_t index, Value item) {
  const Object key = Object::steal(PyLong_FromSsize_t(index));
  trace.hold(key.get());
  if (item.object != nullptr && !trace.is_lazy_number(item) && is_constant(item.object) &&
      !trace.is_born(item.object))
    trace.use(item);
  const Value inputs[] = {list, {key.get(), 0}, item};
  trace.effect(item.object != nullptr ? StepKind::set_item : StepKind::del_item,
               std::span(inputs, item.object != nullptr ? 3 : 2));
  const Repeated repeated(&trace);
  if (item.object == nullptr) return PySequence_DelItem(list.object, index) == 0;
  return PyList_SetItem(list.object, index, Py_NewRef(item.object)) == 0;
}

// An index that stands for one of `count` places.
std::optional<Py_ssize_t> place_of(PyObject* index, Py_ssize_t count) {
  if (!PyLong_CheckExact(index)) return std::nullopt;
  Py_ssize_t place = PyLong_AsSsize_t(index);
  if (PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    return std::nullopt;
  }
  if (place < 0) place += count;
  return place >= 0 && place < count ? std::optional(place) : std::nullopt;
}

std::optional<bool> put_slice(Trace& trace, Value list, Value slice, Value items) {
  Py_ssize_t first, last, step;
  if (!PyList_CheckExact(items.object) && !PyTuple_CheckExact(items.object)) return std::nullopt;
  if (!is_constant(slice.object) || PySlice_Unpack(slice.object, &first, &last, &step) < 0) {
    PyErr_Clear();
    return std::nullopt;
  }
  const Py_ssize_t count = PySlice_AdjustIndices(PyList_GET_SIZE(list.object), &first, &last, step);
  if (step != 1 || count > kFew || count != Py_SIZE(items.object)) return std::nullopt;
  trace.use(slice);
  std::vector<Result> values;
  bool ok = unpack(&trace, items, values);
  for (Py_ssize_t i = 0; ok && i < count; ++i) {
    const Result& value = values[static_cast<size_t>(i)];
    ok = put(trace, list, first + i, {value.object, value.ref});
  }
  for (const Result& value : values) Py_DECREF(value.object);
  return ok;
}

// list[key] of a list that existed before is there, and the trace keeps account of single elements.
bool is_element_of(Trace& trace, Value list, Value key) {
  if (!PyList_CheckExact(list.object) || !PyLong_CheckExact(key.object) ||
      !trace.keeps_elements_apart(list.object))
    return false;
  const Py_ssize_t index = PyLong_AsSsize_t(key.object);
  PyErr_Clear();
  if (index < 0 || index >= PyList_GET_SIZE(list.object)) return false;
  trace.guard_length(list);
  return true;
}

Value element_of(Trace& trace, Value list, Py_ssize_t index) {
  PyObject* element = PyList_GET_ITEM(list.object, index);
  return {element, trace.read_item(list, index, element)};
}

}  // namespace

std::optional<bool> put_in_list(Trace& trace, Value list, Value key, Value item) {
  list = trace.value(list.object, list.ref);
  if (item.object != nullptr && is_element_of(trace, list, key)) {
    trace.use(key);
    const Value inputs[] = {list, key, item};
    trace.effect(StepKind::set_item, inputs);
    return PyObject_SetItem(list.object, key.object, item.object) == 0;
  }
  if (!is_made_list(trace, list)) return std::nullopt;
  if (PySlice_Check(key.object) && item.object != nullptr) return put_slice(trace, list, key, item);
  const auto place = place_of(key.object, PyList_GET_SIZE(list.object));
  if (!place) return std::nullopt;
  trace.use(key);
  return put(trace, list, *place, item);
}

std::optional<Result> pop_of_made_list(Trace& trace, Value list, Value index) {
  list = trace.value(list.object, list.ref);
  if (!has_few_lazy(trace, list)) return std::nullopt;
  const Py_ssize_t count = PyList_GET_SIZE(list.object);
  const auto place =
      index.object == nullptr ? std::optional(count - 1) : place_of(index.object, count);
  if (!place) return std::nullopt;
  if (index.object != nullptr) trace.use(index);
  const Value taken = element_of(trace, list, *place);
  const Object held = Object::share(taken.object);
  if (!put(trace, list, *place, {})) return Result{};
  return Result{Py_NewRef(held.get()), taken.ref};
}

// The last one once more at the end, the others one place further on.
std::optional<bool> insert_in_made_list(Trace& trace, Value list, Value index, Value item) {
  list = trace.value(list.object, list.ref);
  if (!is_made_list(trace, list) || PyList_GET_SIZE(list.object) > kFew ||
      !(trace.is_lazy_number(item) || has_lazy_elements(trace, list)))
    return std::nullopt;
  const Py_ssize_t count = PyList_GET_SIZE(list.object);
  if (!PyLong_CheckExact(index.object)) return std::nullopt;
  Py_ssize_t place = PyLong_AsSsize_t(index.object);
  if (PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    return std::nullopt;
  }
  trace.use(index);
  place = std::clamp<Py_ssize_t>(place < 0 ? place + count : place, 0, count);
  const Object held_item = Object::share(item.object);
  if (place == count) return list_append(&trace, list, item);
  bool ok = list_append(&trace, list, element_of(trace, list, count - 1));
  for (Py_ssize_t i = count - 1; ok && i > place; --i)
    ok = put(trace, list, i, element_of(trace, list, i - 1));
  return ok && put(trace, list, place, item);
}

std::optional<bool> reverse_made_list(Trace& trace, Value list) {
  list = trace.value(list.object, list.ref);
  if (!has_few_lazy(trace, list)) return std::nullopt;
  const Py_ssize_t count = PyList_GET_SIZE(list.object);
  bool ok = true;
  for (Py_ssize_t i = 0, k = count - 1; ok && i < k; ++i, --k) {
    const Value first = element_of(trace, list, i), last = element_of(trace, list, k);
    const Object held = Object::share(first.object);
    ok = put(trace, list, i, last) && put(trace, list, k, first);
  }
  return ok;
}

}  // namespace smelt::bytecode
