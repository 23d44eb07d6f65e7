#include "capture/bytecode/values/sizes.h"

#include <opcode.h>

#include <algorithm>

#include "capture/bytecode/cpython/known_types.h"
#include "capture/bytecode/nodes/lazy_elements.h"
#include "capture/bytecode/values/dynamic_tensors.h"

namespace smelt::bytecode {
namespace {

PyObject* element(PyObject* sequence, Py_ssize_t i) {
  return PyList_Check(sequence) ? PyList_GET_ITEM(sequence, i) : PyTuple_GET_ITEM(sequence, i);
}

bool is_sequence(PyObject* object) { return PyList_CheckExact(object) || is_tuple_or_size(object); }

Object size_object(PyObject* tensor, int dim) {
  return Object::steal(PyLong_FromLongLong(tensors().size_of(tensor, dim)));
}

}  // namespace

bool is_tuple_or_size(PyObject* object) {
  return PyTuple_CheckExact(object) || is_exactly(object, KnownType::size);
}

std::optional<Result> read_shape(Trace& trace, Value tensor) {
  if (!trace.varies(tensor.object)) return std::nullopt;
  trace.use(tensor);
  static PyObject* const name = PyUnicode_InternFromString("shape");
  PyObject* shape = PyObject_GenericGetAttr(tensor.object, name);
  if (shape == nullptr) return Result{};
  std::vector<Value> sizes;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(shape); ++i)
    sizes.push_back(
        {PyTuple_GET_ITEM(shape, i), trace.size_of(tensor.object, static_cast<int>(i))});
  return made_of(trace, sizes, shape);
}

std::optional<Result> read_varying_size(Trace& trace, Value tensor, long dim) {
  const int rank = tensors().is_tensor(tensor.object) ? tensors().rank_of(tensor.object) : 0;
  if (dim < -rank || dim >= rank || !trace.varies(tensor.object)) return std::nullopt;
  trace.use(tensor);
  const int at = static_cast<int>(dim < 0 ? dim + rank : dim);
  Object size = size_object(tensor.object, at);
  return Result{size.release(), trace.size_of(tensor.object, at)};
}

std::optional<Result> read_numel(Trace& trace, Value tensor) {
  if (!trace.varies(tensor.object)) return std::nullopt;
  trace.use(tensor);
  Result product{PyLong_FromLong(1), 0};
  for (int dim = 0; dim < tensors().rank_of(tensor.object); ++dim) {
    const Object before = Object::steal(product.object), size = size_object(tensor.object, dim);
    product = binary(&trace, NB_MULTIPLY, {before.get(), product.ref},
                     {size.get(), trace.size_of(tensor.object, dim)});
  }
  return product;
}

Result made_of(Trace& trace, std::span<const Value> elements, PyObject* made) {
  const StepKind kind = PyList_CheckExact(made)    ? StepKind::build_list
                        : PyTuple_CheckExact(made) ? StepKind::build_tuple
                                                   : StepKind::build_size;
  return {made, trace.make(kind, elements, made)};
}

bool has_lazy_elements(Trace& trace, Value container) {
  if (!trace.active() || !is_sequence(container.object)) return false;
  container = trace.value(container.object, container.ref);
  if (container.ref == 0 || !trace.is_born(container.object)) return false;
  for (Py_ssize_t i = 0; i < Py_SIZE(container.object); ++i) {
    PyObject* item = element(container.object, i);
    if (is_plain_number(item) &&
        trace.is_runtime_scalar({item, trace.read_item(container, i, item)}))
      return true;
  }
  return false;
}

std::optional<bool> equal_elements(Trace& trace, Value a, Value b) {
  if (!is_tuple_or_size(a.object) || !is_tuple_or_size(b.object)) return std::nullopt;
  const auto has_numbers = [](PyObject* tuple) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i)
      if (!PyLong_CheckExact(PyTuple_GET_ITEM(tuple, i))) return false;
    return true;
  };
  if (!has_numbers(a.object) || !has_numbers(b.object)) return std::nullopt;
  trace.guard_length(a);
  trace.guard_length(b);
  if (PyTuple_GET_SIZE(a.object) != PyTuple_GET_SIZE(b.object)) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(a.object); ++i) {
    PyObject *left = PyTuple_GET_ITEM(a.object, i), *right = PyTuple_GET_ITEM(b.object, i);
    const Result equal = compare(&trace, Py_EQ, {left, trace.read_item(a, i, left)},
                                 {right, trace.read_item(b, i, right)});
    const Object held = Object::steal(equal.object);
    if (!held || truth(&trace, {equal.object, equal.ref}) != 1) return false;
  }
  return true;
}

// -- indices

namespace {

// Numbers in a key with stand-ins in their place.
class IndexDisguise {
 public:
  explicit IndexDisguise(Trace& trace) : trace_(trace) {}
  ~IndexDisguise() {
    if (open_) trace_.log().end_stand_ins();
  }
  IndexDisguise(const IndexDisguise&) = delete;
  IndexDisguise& operator=(const IndexDisguise&) = delete;

  // The part of the key itself where there is nothing to put in.
  Object part(Value v) {
    v = trace_.value(v.object, v.ref);
    if (PySlice_Check(v.object)) return slice(v);
    if (PyLong_CheckExact(v.object) && trace_.take_as_size(v.ref)) return number(v);
    use_in_op(trace_, v);
    return Object::share(v.object);
  }

  // A key that is one number: a place among `size`, which the segment relies on. Nothing if it is
  // no such place, or none that ops take as they are.
  Object place(Value v, Value size) {
    v = trace_.value(v.object, v.ref);
    const long index = PyLong_AsLong(v.object), count = PyLong_AsLong(size.object);
    if (PyErr_Occurred() != nullptr || index < -count || index >= count ||
        !trace_.take_as_size(v.ref)) {
      PyErr_Clear();
      return {};
    }
    const Object zero = Object::steal(PyLong_FromLong(0));
    const Result behind = binary(&trace_, NB_ADD, v, size);
    const Object held = Object::steal(behind.object);
    const Value from_end{behind.object, behind.ref}, none{zero.get(), 0};
    const bool is_known = index < 0 ? asks(v, Py_LT, none) && asks(from_end, Py_GE, none)
                                    : asks(v, Py_GE, none) && asks(v, Py_LT, size);
    if (!is_known) return {};
    is_place_ = true;
    return number(v);
  }

  void end() {
    if (!std::exchange(open_, false)) return;
    const StandInUse use = trace_.log().end_stand_ins();
    for (const Value& number : numbers_)
      if (std::ranges::count(use.looked_at, number.ref) > 0 ||
          (!is_place_ && std::ranges::count(use.compared, number.ref) > 0))
        trace_.use(number);
  }
  void use_all() {
    for (const Value& number : numbers_) trace_.use(number);
  }
  bool any() const { return !numbers_.empty(); }
  bool is_place() const { return is_place_; }

 private:
  Object slice(Value v) {
    const auto* slice = reinterpret_cast<PySliceObject*>(v.object);
    PyObject* const parts[] = {slice->start, slice->stop, slice->step};
    Object made[3];
    bool any = false;
    for (Py_ssize_t i = 0; i < 3; ++i) {
      const Ref ref = v.ref == 0 ? 0 : trace_.read_slice(v.object, i);
      const bool is_size = trace_.take_as_size(ref);
      any = any || is_size;
      made[i] = is_size ? number({parts[i], ref}) : Object::share(parts[i]);
      if (ref != 0 && !is_size) trace_.use({parts[i], ref});
    }
    if (!any) {
      use_in_op(trace_, v);
      return Object::share(v.object);
    }
    return Object::steal(PySlice_New(made[0].get(), made[1].get(), made[2].get()));
  }

  Object number(Value v) {
    PyObject* made = trace_.active() ? trace_.log().stand_in(v.object, v.ref, true) : nullptr;
    if (made == nullptr) {
      trace_.use(v);
      return Object::share(v.object);
    }
    open_ = true;
    numbers_.push_back(v);
    return Object::steal(made);
  }

  // A guard on what is the case.
  bool asks(Value a, int op, Value b) {
    const Result answer = compare(&trace_, op, a, b);
    const Object held = Object::steal(answer.object);
    if (!held) return false;
    trace_.guard_truth({answer.object, answer.ref}, answer.object == Py_True);
    return answer.object == Py_True;
  }

  Trace& trace_;
  std::vector<Value> numbers_;
  bool open_ = false;
  bool is_place_ = false;
};

// How many dimensions of the tensor a part of the key takes; -1: that is not known.
int dims_of(PyObject* part) {
  if (part == Py_None) return 0;
  if (PySlice_Check(part) || PyLong_CheckExact(part)) return 1;
  if (!tensors().is_tensor(part)) return -1;
  const Object dtype = Object::steal(PyObject_GetAttrString(part, "dtype"));
  PyErr_Clear();
  const std::string name = dtype ? text_of(dtype.get()) : "";
  const bool is_mask = name == "torch.bool" || name == "torch.uint8";
  return is_mask ? tensors().rank_of(part) : 1;
}

// A slice from the beginning is left out where it reaches the end. `stop` is the same in each call,
// or a stand-in, of which PyTorch does not ask that.
void guard_reach(Trace& trace, PyObject* tensor, int dim, PyObject* object) {
  const auto* slice = reinterpret_cast<PySliceObject*>(object);
  const auto is_number = [](PyObject* part, long value) {
    return part == Py_None || (PyLong_CheckExact(part) && PyLong_AsLong(part) == value);
  };
  if (!is_number(slice->start, 0) || !is_number(slice->step, 1) ||
      !PyLong_CheckExact(slice->stop) || PyLong_AsLong(slice->stop) < 0) {
    PyErr_Clear();
    return;
  }
  const Ref size = trace.size_of(tensor, dim);
  if (size == 0) return;
  const Object now = size_object(tensor, dim);
  const Result reaches = compare(&trace, Py_LE, {now.get(), size}, {slice->stop, 0});
  const Object held = Object::steal(reaches.object);
  if (held) trace.guard_truth({reaches.object, reaches.ref}, reaches.object == Py_True);
}

// For the parts of the key as PyTorch gets them.
void guard_index(Trace& trace, PyObject* tensor, PyObject* key) {
  const bool is_tuple = PyTuple_CheckExact(key);
  const Py_ssize_t count = is_tuple ? PyTuple_GET_SIZE(key) : 1;
  const auto part = [&](Py_ssize_t i) { return is_tuple ? PyTuple_GET_ITEM(key, i) : key; };
  int behind = 0;  // dimensions of the parts behind an ellipsis
  bool is_behind = false;
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (part(i) == Py_Ellipsis) {
      is_behind = true;
      behind = 0;
      continue;
    }
    const int dims = dims_of(part(i));
    if (dims < 0) return trace.pin_sizes_of(tensor);
    behind += is_behind ? dims : 0;
  }
  int dim = 0;
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (part(i) == Py_Ellipsis) {
      dim = tensors().rank_of(tensor) - behind;
      continue;
    }
    if (PySlice_Check(part(i)) && dim >= 0 && dim < tensors().rank_of(tensor))
      guard_reach(trace, tensor, dim, part(i));
    dim += dims_of(part(i));
  }
}

}  // namespace

PyObject* call_with_index(Trace& trace, Value tensor, Value key,
                          const std::function<PyObject*(PyObject* key)>& call) {
  IndexDisguise disguise(trace);
  Object made;
  if (PyTuple_CheckExact(key.object)) {
    made = Object::steal(PyTuple_New(PyTuple_GET_SIZE(key.object)));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key.object); ++i) {
      PyObject* item = PyTuple_GET_ITEM(key.object, i);
      PyTuple_SET_ITEM(made.get(), i,
                       disguise.part({item, trace.read_item(key, i, item)}).release());
    }
  } else if (PyLong_CheckExact(key.object) && tensors().rank_of(tensor.object) > 0) {
    const Object size = size_object(tensor.object, 0);
    made = disguise.place(key, {size.get(), trace.size_of(tensor.object, 0)});
  }
  if (!made) made = disguise.part(key);
  if (!disguise.is_place()) guard_index(trace, tensor.object, made.get());
  const size_t position = trace.log().position();
  PyObject* result = call(made.get());
  disguise.end();
  // PyTorch takes no such numbers here: they are what they are.
  if (result == nullptr && disguise.any() && trace.log().position() == position) {
    PyErr_Clear();
    disguise.use_all();
    return call(key.object);
  }
  return result;
}

}  // namespace smelt::bytecode
