// torch.tensor(number), as_tensor(number) of numbers that may be others in the next call, alone or in
// lists: by ops that take them, where the others take them as data.
#include <algorithm>

#include "capture/bytecode/torch/torch_calls.h"
#include "capture/bytecode/values/sizes.h"

namespace smelt::bytecode {
namespace {

constexpr size_t kDepth = 3;  // of lists

PyObject* torch_function(const char* name) {
  const Object torch = Object::steal(PyImport_ImportModule("torch"));
  return torch ? PyObject_GetAttrString(torch.get(), name) : nullptr;
}

// The element type that torch.tensor gives them.
Object dtype_of(bool is_int) {
  const Object torch = Object::steal(PyImport_ImportModule("torch"));
  if (is_int) return Object::steal(PyObject_GetAttrString(torch.get(), "int64"));
  return Object::steal(PyObject_CallMethod(torch.get(), "get_default_dtype", nullptr));
}

bool is_list(PyObject* object) { return PyList_CheckExact(object) || is_tuple_or_size(object); }

PyObject* element(PyObject* list, Py_ssize_t i) {
  return PyList_CheckExact(list) ? PyList_GET_ITEM(list, i) : PyTuple_GET_ITEM(list, i);
}

enum class Kind : uint8_t { other, ints, floats };

// Of plain numbers, in lists of the same lengths; the first of each depth says which (`lengths`).
Kind kind_of(PyObject* numbers, std::vector<Py_ssize_t>& lengths, size_t depth, bool is_first) {
  if (!is_list(numbers)) {
    if (depth != lengths.size()) return Kind::other;
    return PyLong_CheckExact(numbers)    ? Kind::ints
           : PyFloat_CheckExact(numbers) ? Kind::floats
                                         : Kind::other;
  }
  if (is_first) lengths.push_back(Py_SIZE(numbers));
  if (depth >= std::min(lengths.size(), kDepth) || Py_SIZE(numbers) != lengths[depth] ||
      Py_SIZE(numbers) == 0)
    return Kind::other;
  Kind kind = Kind::ints;
  for (Py_ssize_t i = 0; i < Py_SIZE(numbers); ++i) {
    const Kind one = kind_of(element(numbers, i), lengths, depth + 1, is_first && i == 0);
    if (one == Kind::other) return one;
    kind = std::max(kind, one);
  }
  return kind;
}

bool may_change(Trace& trace, Value numbers, size_t depth = 0) {
  if (!is_list(numbers.object)) return trace.is_runtime_scalar(numbers);
  if (has_lazy_elements(trace, numbers)) return true;
  if (depth == kDepth) return false;
  for (Py_ssize_t i = 0; i < Py_SIZE(numbers.object); ++i)
    if (PyObject* one = element(numbers.object, i);
        is_list(one) && may_change(trace, trace.value(one), depth + 1))
      return true;
  return false;
}

// Each number by itself, and lists of such as they are nested.
Result made_of_numbers(Trace& trace, Value numbers, PyObject* names, std::span<const Value> rest) {
  static PyObject* const of_one = torch_function("scalar_tensor");
  static PyObject* const stack = torch_function("stack");
  if (!is_list(numbers.object)) {
    std::vector<Value> all{numbers};
    all.insert(all.end(), rest.begin(), rest.end());
    return call_op_on(trace, {of_one, 0}, all, names);
  }
  std::vector<Result> elements;
  std::vector<Object> held;
  std::vector<Value> made;
  bool ok = unpack(&trace, numbers, elements);
  for (const Result& one : elements) {
    const Result part = ok ? made_of_numbers(trace, {one.object, one.ref}, names, rest) : Result{};
    ok = part.object != nullptr;
    held.push_back(Object::steal(part.object));
    made.push_back({part.object, part.ref});
    Py_DECREF(one.object);
  }
  if (!ok) return {};
  const Result list = build_list(&trace, made);
  const Object held_list = Object::steal(list.object);
  const Value argument{list.object, list.ref};
  return list.object == nullptr ? Result{} : call_op_on(trace, {stack, 0}, {&argument, 1}, nullptr);
}

}  // namespace

bool make_of_number(Trace& trace, Value callee, std::span<const Value> arguments,
                    PyObject* keywords, Result* result) {
  static PyObject* const dtype_name = PyUnicode_InternFromString("dtype");
  const std::string_view name = name_in_c(callee.object);
  const size_t named = keywords == nullptr ? 0 : static_cast<size_t>(PyTuple_GET_SIZE(keywords));
  if ((name != "tensor" && name != "as_tensor") || arguments.size() != named + 1 ||
      !may_change(trace, arguments[0]))
    return false;
  std::vector<Py_ssize_t> lengths;
  const Kind kind = kind_of(arguments[0].object, lengths, 0, true);
  if (kind == Kind::other) return false;
  std::vector<Value> rest(arguments.begin() + 1, arguments.end());
  std::vector<PyObject*> names;
  bool has_dtype = false;
  for (size_t i = 0; i < named; ++i) {
    names.push_back(PyTuple_GET_ITEM(keywords, static_cast<Py_ssize_t>(i)));
    const std::string keyword = text_of(names.back());
    if (keyword != "dtype" && keyword != "device") return false;
    const bool is_given = rest[i].object != Py_None;
    if (keyword == "dtype" && !is_given) return false;
    has_dtype |= keyword == "dtype";
  }
  const Object dtype = dtype_of(kind == Kind::ints);
  if (!has_dtype) {
    names.push_back(dtype_name);
    rest.push_back({dtype.get(), 0});
  }
  const Object all_names = Object::steal(PyTuple_New(static_cast<Py_ssize_t>(names.size())));
  for (size_t i = 0; i < names.size(); ++i)
    PyTuple_SET_ITEM(all_names.get(), static_cast<Py_ssize_t>(i), Py_NewRef(names[i]));
  *result = made_of_numbers(trace, arguments[0], all_names.get(), rest);
  return true;
}

}  // namespace smelt::bytecode
