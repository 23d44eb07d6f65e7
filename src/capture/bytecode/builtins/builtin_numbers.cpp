// Functions of numbers that stay lazy: what they give is computed again by a cached call, as
// arithmetic is.
#include <string_view>

#include "capture/bytecode/builtins/builtin_call.h"

namespace smelt::bytecode {
namespace {

bool is_number(PyObject* object) {
  return PyLong_CheckExact(object) || PyFloat_CheckExact(object) || PyBool_Check(object);
}

// int(tensor), float(tensor) of one element: what item() gives, converted.
bool is_one_number(const BuiltinCall& c) {
  if (c.count() != 1 || c.has_keywords() || !tensors().is_tensor(c.argument(0).object) ||
      !PyType_Check(c.callee.object))
    return false;
  const Object count = Object::steal(PyObject_CallMethod(c.argument(0).object, "numel", nullptr));
  const bool is_one = count && PyLong_AsLong(count.get()) == 1;
  PyErr_Clear();
  return is_one;
}

bool convert_tensor(BuiltinCall& c, Result* result) {
  const Result number = read_number(c.trace, c.argument(0));
  if (number.object == nullptr) return true;
  const Object held = Object::steal(number.object);
  if (!c.trace.active()) {
    result->object = call_plainly(c.callee.object, c.arguments, nullptr);
    return true;
  }
  const Value value{number.object, number.ref};
  BuiltinCall converted{c.trace, c.callee, std::span(&value, 1), nullptr};
  return call_on_numbers(converted, result);
}

// max(1, step): what type it has depends on which of the two it is, so that is asked.
bool choose_number(BuiltinCall& c, Result* result) {
  if (c.count() != 2 || !PyCFunction_Check(c.callee.object) ||
      Py_TYPE(c.argument(0).object) == Py_TYPE(c.argument(1).object))
    return false;
  const std::string_view name =
      reinterpret_cast<PyCFunctionObject*>(c.callee.object)->m_ml->ml_name;
  if (name != "max" && name != "min") return false;
  const Value first = c.argument(0), second = c.argument(1);
  const Result better = compare(&c.trace, name == "max" ? Py_GT : Py_LT, second, first);
  if (better.object == nullptr) return true;
  const Object held = Object::steal(better.object);
  const int takes_second = truth(&c.trace, {better.object, better.ref});
  if (takes_second < 0) return true;
  const Value& chosen = takes_second == 1 ? second : first;
  *result = {Py_NewRef(chosen.object), chosen.ref};
  return true;
}

// x < sequence[i] for bisect_right, sequence[i] < x for bisect_left; -1 with an error set.
int is_before(Trace& trace, Value x, Value element, bool right) {
  const Result less =
      right ? compare(&trace, Py_LT, x, element) : compare(&trace, Py_LT, element, x);
  if (less.object == nullptr) return -1;
  const Object held = Object::steal(less.object);
  return truth(&trace, {less.object, less.ref});
}

}  // namespace

bool are_lazy_numbers(std::span<const Value> arguments) {
  bool lazy = false;
  for (const Value& v : arguments) {
    if (!is_number(v.object)) return false;
    lazy |= v.ref != 0;
  }
  return lazy;
}

bool call_on_numbers(BuiltinCall& c, Result* result) {
  if (is_one_number(c)) return convert_tensor(c, result);
  if (c.has_keywords() || c.count() == 0 || c.count() > 2 || !are_lazy_numbers(c.arguments))
    return c.on_constants(result);
  if (choose_number(c, result)) return true;
  PyObject* number = call_plainly(c.callee.object, c.arguments, nullptr);
  if (number == nullptr || !is_number(number)) {  // divmod's tuple, an error
    PyErr_Clear();
    Py_XDECREF(number);
    return c.on_constants(result);
  }
  const Value second = c.count() == 2 ? c.argument(1) : Value{};
  *result = {number, c.trace.scalar_call(c.callee.object, c.argument(0), second, number)};
  return true;
}

bool convert_object(BuiltinCall& c, Result* result) {
  static PyObject* const to_float = PyUnicode_InternFromString("__float__");
  static PyObject* const to_int = PyUnicode_InternFromString("__int__");
  if (c.count() != 1 || c.has_keywords()) return false;
  const bool is_float = c.callee.object == reinterpret_cast<PyObject*>(&PyFloat_Type);
  PyObject* name = is_float ? to_float : to_int;
  if (tensors().is_tensor(c.argument(0).object) &&
      has_own_method(c.trace, c.argument(0).object, name))
    return false;
  PyObject* method = python_method(c.argument(0).object, name);
  if (method == nullptr) return false;
  *result = c.call_special(method, name, c.argument(0));
  const Object number = Object::steal(result->object);
  if (!number) return true;
  if (is_float ? PyFloat_CheckExact(number.get()) : PyLong_CheckExact(number.get())) {
    result->object = Py_NewRef(number.get());
    return true;
  }
  // A subclass, which is warned of, or an error.
  c.trace.stop(BreakReason::raised, text_of(name));
  *result = {nullptr, 0};
  const bool is_like = is_float ? PyFloat_Check(number.get()) : PyLong_Check(number.get());
  if (is_like)
    result->object = PyObject_CallOneArg(c.callee.object, c.argument(0).object);
  else if (is_float)
    PyErr_Format(PyExc_TypeError, "%.50s.__float__ returned non-float (type %.50s)",
                 Py_TYPE(c.argument(0).object)->tp_name, Py_TYPE(number.get())->tp_name);
  else
    PyErr_Format(PyExc_TypeError, "__int__ returned non-int (type %.200s)",
                 Py_TYPE(number.get())->tp_name);
  return true;
}

bool call_bisect(BuiltinCall& c, std::string_view name, Result* result) {
  const bool right = name == "bisect_right" || name == "bisect";
  const bool is_plain =
      c.count() == 2 && !c.has_keywords() && is_number(c.argument(1).object) &&
      (PyList_CheckExact(c.argument(0).object) || PyTuple_CheckExact(c.argument(0).object));
  if (name.starts_with("insort")) return change_list(c, result);
  if (!is_plain || !(right || name == "bisect_left")) return c.on_constants(result);
  std::vector<Result> items;
  unpack(&c.trace, c.argument(0), items);
  size_t low = 0, high = items.size();
  int before = 0;
  while (low < high && before >= 0) {
    const size_t middle = (low + high) / 2;
    before = is_before(c.trace, c.argument(1), {items[middle].object, items[middle].ref}, right);
    const bool goes_left = (before == 1) == right;
    if (goes_left)
      high = middle;
    else
      low = middle + 1;
  }
  release(items);
  if (before >= 0) result->object = PyLong_FromSize_t(low);
  return true;
}

}  // namespace smelt::bytecode
