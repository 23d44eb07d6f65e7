#include "capture/bytecode/values/dynamic_tensors.h"

#include <algorithm>

#include "capture/bytecode/values/operations.h"

namespace smelt::bytecode {
namespace {

constexpr int kDepth = 3;  // of containers

bool is_dynamic(const Trace& trace, PyObject* object) {
  if (!trace.active() || !tensors().is_tensor(object)) return false;
  TensorLog& log = const_cast<Trace&>(trace).log();
  const LogValue value = log.value_of(object);
  return value >= 0 && log.is_dynamic(value);
}

bool is_list_or_tuple(PyObject* object) {
  return PyList_CheckExact(object) || PyTuple_CheckExact(object);
}

PyObject* element(PyObject* sequence, Py_ssize_t i) {
  return PyList_Check(sequence) ? PyList_GET_ITEM(sequence, i) : PyTuple_GET_ITEM(sequence, i);
}

bool holds_dynamic(const Trace& trace, PyObject* object, int depth = 0) {
  if (is_dynamic(trace, object)) return true;
  if (depth == kDepth || !is_list_or_tuple(object)) return false;
  for (Py_ssize_t i = 0; i < Py_SIZE(object); ++i)
    if (holds_dynamic(trace, element(object, i), depth + 1)) return true;
  return false;
}

// A slice with an end is left out where it is all of the tensor.
bool is_whole_slice(PyObject* key) {
  if (!PySlice_Check(key)) return false;
  const auto* slice = reinterpret_cast<PySliceObject*>(key);
  return slice->start == Py_None && slice->stop == Py_None && slice->step == Py_None;
}

// How many dimensions an Ellipsis stands for is up to the tensor.
bool may_be_in_key(PyObject* key) {
  return tensors().is_tensor(key) || key == Py_None || is_whole_slice(key) ||
         PyLong_CheckExact(key);
}

long rank_of(PyObject* tensor) {
  const Object rank = Object::steal(PyObject_CallMethod(tensor, "dim", nullptr));
  PyErr_Clear();
  return rank ? PyLong_AsLong(rank.get()) : -1;
}

}  // namespace

bool use_in_op(Trace& trace, Value value) {
  if (!holds_dynamic(trace, value.object)) {
    trace.use(value);
    return false;
  }
  if (!is_list_or_tuple(value.object)) return true;
  trace.guard_type(value);
  trace.guard_length(value);
  for (Py_ssize_t i = 0; i < Py_SIZE(value.object); ++i) {
    PyObject* item = element(value.object, i);
    use_in_op(trace, {item, trace.read_item(value, i, item)});
  }
  return true;
}

void stop_at_shape(Trace& trace) {
  trace.stop(BreakReason::data_dependent, "the shape of the result of an op");
}

namespace {

// In C: others may have put their own into the module.
PyObject* torch_function(const char* name) {
  const Object core = Object::steal(PyImport_ImportModule("torch._C"));
  const Object functions =
      Object::steal(core ? PyObject_GetAttrString(core.get(), "_VariableFunctions") : nullptr);
  return functions ? PyObject_GetAttrString(functions.get(), name) : nullptr;
}

}  // namespace

// By ops that take it whatever its shape is, and give one number.
std::optional<Result> read_size(Trace& trace, Value tensor, std::optional<int> dimension) {
  if (!is_dynamic(trace, tensor.object)) return std::nullopt;
  static PyObject* const shape_of = torch_function("_shape_as_tensor");
  static PyObject* const select = torch_function("select");
  static PyObject* const product = torch_function("prod");
  if (shape_of == nullptr || select == nullptr || product == nullptr) return std::nullopt;
  const Result shape = call(&trace, {shape_of, 0}, {&tensor, 1}, nullptr);
  const Object held_shape = Object::steal(shape.object);
  if (!held_shape) return Result{};
  Value sizes{held_shape.get(), shape.ref};
  Object held_size;
  if (dimension) {
    const Object zero = Object::steal(PyLong_FromLong(0));
    const Object at = Object::steal(PyLong_FromLong(*dimension));
    const Value arguments[] = {sizes, {zero.get(), 0}, {at.get(), 0}};
    const Result size = call(&trace, {select, 0}, arguments, nullptr);
    held_size = Object::steal(size.object);
    if (!held_size) return Result{};
    sizes = {held_size.get(), size.ref};
  }
  const Result number = call(&trace, {product, 0}, {&sizes, 1}, nullptr);
  const Object held_number = Object::steal(number.object);
  if (!held_number) return Result{};
  return read_number(trace, {held_number.get(), number.ref});
}

bool may_index(const Trace& trace, PyObject* tensor, PyObject* key, PyObject* item) {
  const bool is_open = is_dynamic(trace, tensor) || holds_dynamic(trace, key);
  if (is_open) {
    if (!PyTuple_CheckExact(key)) {
      if (!may_be_in_key(key)) return false;
    } else if (!std::all_of(&PyTuple_GET_ITEM(key, 0),
                            &PyTuple_GET_ITEM(key, 0) + PyTuple_GET_SIZE(key), may_be_in_key)) {
      return false;
    }
  }
  if (item == nullptr || !is_dynamic(trace, item)) return true;
  const Object shape = Object::steal(PyObject_GetAttrString(item, "shape"));
  PyErr_Clear();
  return shape && PyTuple_GET_SIZE(shape.get()) > 0 &&
         PyLong_AsLong(PyTuple_GET_ITEM(shape.get(), 0)) != 1;
}

bool is_put(const Trace& trace, PyObject* tensor, PyObject* key, PyObject* item) {
  if (item == nullptr || !is_dynamic(trace, item) || !tensors().is_tensor(key)) return false;
  const long selecting = rank_of(key);
  return selecting >= 1 && rank_of(item) <= 1 + rank_of(tensor) - selecting;
}

}  // namespace smelt::bytecode
