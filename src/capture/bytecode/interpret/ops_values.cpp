// Operators, items, and the building and taking apart of containers.
#include "capture/bytecode/interpret/instruction_handlers.h"
#include "capture/bytecode/values/sizes.h"

namespace smelt::bytecode {

InstructionHandlers::Flow InstructionHandlers::binary_op(int op) {
  return replace(2, binary(trace_, op, peek(2), peek(1)));
}

InstructionHandlers::Flow InstructionHandlers::compare_op(int op) {
  return replace(2, compare(trace_, op, peek(2), peek(1)));
}

InstructionHandlers::Flow InstructionHandlers::unary_op(ScalarOp op) {
  return replace(1, unary(trace_, op, peek(1)));
}

InstructionHandlers::Flow InstructionHandlers::unary_not() {
  // A number stays what it will be in each call.
  if (PyObject* object = peek(1).object;
      PyLong_CheckExact(object) || PyFloat_CheckExact(object) || PyBool_Check(object))
    return replace(1, unary(trace_, ScalarOp::unary_not, peek(1)));
  const int is_true = truth(trace_, peek(1));
  if (is_true < 0) return Flow::error;
  return replace(1, {PyBool_FromLong(!is_true), 0});
}

InstructionHandlers::Flow InstructionHandlers::is_op(bool negate) {
  return replace(2, is_same(trace_, peek(2), peek(1), negate));
}

InstructionHandlers::Flow InstructionHandlers::contains_op(bool negate) {
  return replace(2, contains(trace_, peek(1), peek(2), negate));
}

InstructionHandlers::Flow InstructionHandlers::subscript() {
  return replace(2, get_item(trace_, peek(2), peek(1)));
}

InstructionHandlers::Flow InstructionHandlers::store_subscript() {
  return done(3, set_item(trace_, peek(2), peek(1), peek(3)));
}

InstructionHandlers::Flow InstructionHandlers::delete_subscript() {
  return done(2, delete_item(trace_, peek(2), peek(1)));
}

InstructionHandlers::Flow InstructionHandlers::binary_slice() {
  const std::vector<Value> bounds = top_values(2);
  const Result slice = build_slice(trace_, bounds);
  if (slice.object == nullptr) return Flow::error;
  const Object holder = Object::steal(slice.object);
  return replace(3, get_item(trace_, peek(3), {slice.object, slice.ref}));
}

InstructionHandlers::Flow InstructionHandlers::store_slice() {
  const std::vector<Value> bounds = top_values(2);
  const Result slice = build_slice(trace_, bounds);
  if (slice.object == nullptr) return Flow::error;
  const Object holder = Object::steal(slice.object);
  return done(4, set_item(trace_, peek(3), {slice.object, slice.ref}, peek(4)));
}

// -- building

InstructionHandlers::Flow InstructionHandlers::build(Result (*operation)(Trace*,
                                                                         std::span<const Value>),
                                                     int inputs) {
  return replace(inputs, operation(trace_, top_values(inputs)));
}

InstructionHandlers::Flow InstructionHandlers::build_const_key_map(int count) {
  PyObject* keys = peek(1).object;
  std::vector<Value> items;
  for (int i = 0; i < count; ++i) {
    items.push_back({PyTuple_GET_ITEM(keys, i), 0});
    items.push_back(peek(1 + count - i));
  }
  return replace(count + 1, build_map(trace_, items));
}

InstructionHandlers::Flow InstructionHandlers::extend(bool (*operation)(Trace*, Value, Value),
                                                      int distance) {
  const bool ok = operation(trace_, peek(distance + 1), peek(1));
  PyObject* iterable = peek(1).object;
  if (!ok && operation == &list_extend && PyErr_ExceptionMatches(PyExc_TypeError) &&
      Py_TYPE(iterable)->tp_iter == nullptr && !PySequence_Check(iterable))
    PyErr_Format(PyExc_TypeError, "Value after * must be an iterable, not %.200s",
                 Py_TYPE(iterable)->tp_name);
  if (!ok && operation == &dict_update && PyErr_ExceptionMatches(PyExc_AttributeError))
    PyErr_Format(PyExc_TypeError, "'%.200s' object is not a mapping", Py_TYPE(iterable)->tp_name);
  return done(1, ok);
}

InstructionHandlers::Flow InstructionHandlers::map_add(int distance) {
  return done(2, set_item(trace_, peek(distance + 2), peek(2), peek(1)));
}

InstructionHandlers::Flow InstructionHandlers::to_tuple() {
  return replace(1, list_to_tuple(trace_, peek(1)));
}

InstructionHandlers::Flow InstructionHandlers::format_value(int flags) {
  const bool has_spec = (flags & 4) != 0;
  const Value spec = has_spec ? peek(1) : Value{};
  const int inputs = has_spec ? 2 : 1;
  return replace(inputs, format(trace_, peek(inputs), flags & 3, spec));
}

// -- taking apart

// At least `count` elements of the iterable; without a rest, one more than that at most, as there
// may be no end to them.
bool InstructionHandlers::take_items(Value iterable, int count, bool with_rest,
                                     std::vector<Result>& items) {
  PyTypeObject* type = Py_TYPE(iterable.object);
  if (type->tp_iter == nullptr && !PySequence_Check(iterable.object)) {
    PyErr_Format(PyExc_TypeError, "cannot unpack non-iterable %.200s object", type->tp_name);
    return false;
  }
  if (with_rest || is_tuple_or_size(iterable.object) || PyList_CheckExact(iterable.object))
    return unpack(trace_, iterable, items);
  const Result iterator = get_iter(trace_, iterable);
  if (iterator.object == nullptr) return false;
  const Object holder = Object::steal(iterator.object);
  while (static_cast<int>(items.size()) <= count) {
    const Result item = next(trace_, {iterator.object, iterator.ref});
    if (item.object == nullptr) return PyErr_Occurred() == nullptr;
    items.push_back(item);
  }
  return true;
}

InstructionHandlers::Flow InstructionHandlers::unpack_sequence(int count) {
  std::vector<Result> items;
  bool ok = take_items(peek(1), count, false, items);
  const int found = static_cast<int>(items.size());
  if (ok && found < count) {
    PyErr_Format(PyExc_ValueError, "not enough values to unpack (expected %d, got %d)", count,
                 found);
    ok = false;
  } else if (ok && found > count) {
    PyErr_Format(PyExc_ValueError, "too many values to unpack (expected %d)", count);
    ok = false;
  }
  if (!ok) {
    for (const Result& item : items) Py_DECREF(item.object);
    return Flow::error;
  }
  drop(1);
  for (int i = count - 1; i >= 0; --i) push(items[static_cast<size_t>(i)]);
  return Flow::next;
}

InstructionHandlers::Flow InstructionHandlers::unpack_with_rest(int before, int after) {
  std::vector<Result> items;
  bool ok = take_items(peek(1), before + after, true, items);
  const int found = static_cast<int>(items.size());
  if (ok && found < before + after) {
    PyErr_Format(PyExc_ValueError, "not enough values to unpack (expected at least %d, got %d)",
                 before + after, found);
    ok = false;
  }
  Result rest;
  if (ok) {
    std::vector<Value> values;
    for (int i = before; i < found - after; ++i)
      values.push_back({items[static_cast<size_t>(i)].object, items[static_cast<size_t>(i)].ref});
    rest = build_list(trace_, values);
  }
  if (rest.object == nullptr) {
    for (const Result& item : items) Py_DECREF(item.object);
    return Flow::error;
  }
  drop(1);
  for (int i = found - 1; i >= found - after; --i) push(items[static_cast<size_t>(i)]);
  push(rest);
  for (int i = found - after - 1; i >= before; --i) let_go(items[static_cast<size_t>(i)].object);
  for (int i = before - 1; i >= 0; --i) push(items[static_cast<size_t>(i)]);
  return Flow::next;
}

}  // namespace smelt::bytecode
