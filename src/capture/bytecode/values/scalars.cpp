// Arithmetic, comparison, truth and formatting. Numbers and strings stay lazy: what is computed
// from them is computed again by a cached call, and guarded only where something depends on it.
#include <opcode.h>

#include <array>

#include "capture/bytecode/cpython/libraries.h"
#include "capture/bytecode/cpython/names.h"
#include "capture/bytecode/trace/boundary.h"
#include "capture/bytecode/values/operations.h"
#include "capture/bytecode/values/operator_names.h"
#include "capture/bytecode/values/sizes.h"

namespace smelt::bytecode {
namespace {

bool is_number(PyObject* object) {
  return PyLong_CheckExact(object) || PyFloat_CheckExact(object) || PyBool_Check(object);
}

// What a scalar node may compute with.
bool is_lazy_pair(PyObject* a, PyObject* b) {
  return (is_number(a) && is_number(b)) || (PyUnicode_CheckExact(a) && PyUnicode_CheckExact(b));
}

bool is_tensor(PyObject* object) { return tensors().is_tensor(object); }

PyObject* compute(int op, PyObject* a, PyObject* b) {
  using Function = PyObject* (*)(PyObject*, PyObject*);
  static constexpr std::array<Function, 26> kFunctions = [] {
    std::array<Function, 26> f{};
    f[NB_ADD] = PyNumber_Add;
    f[NB_AND] = PyNumber_And;
    f[NB_FLOOR_DIVIDE] = PyNumber_FloorDivide;
    f[NB_LSHIFT] = PyNumber_Lshift;
    f[NB_MATRIX_MULTIPLY] = PyNumber_MatrixMultiply;
    f[NB_MULTIPLY] = PyNumber_Multiply;
    f[NB_REMAINDER] = PyNumber_Remainder;
    f[NB_OR] = PyNumber_Or;
    f[NB_POWER] = [](PyObject* x, PyObject* y) { return PyNumber_Power(x, y, Py_None); };
    f[NB_RSHIFT] = PyNumber_Rshift;
    f[NB_SUBTRACT] = PyNumber_Subtract;
    f[NB_TRUE_DIVIDE] = PyNumber_TrueDivide;
    f[NB_XOR] = PyNumber_Xor;
    f[NB_INPLACE_ADD] = PyNumber_InPlaceAdd;
    f[NB_INPLACE_AND] = PyNumber_InPlaceAnd;
    f[NB_INPLACE_FLOOR_DIVIDE] = PyNumber_InPlaceFloorDivide;
    f[NB_INPLACE_LSHIFT] = PyNumber_InPlaceLshift;
    f[NB_INPLACE_MATRIX_MULTIPLY] = PyNumber_InPlaceMatrixMultiply;
    f[NB_INPLACE_MULTIPLY] = PyNumber_InPlaceMultiply;
    f[NB_INPLACE_REMAINDER] = PyNumber_InPlaceRemainder;
    f[NB_INPLACE_OR] = PyNumber_InPlaceOr;
    f[NB_INPLACE_POWER] = [](PyObject* x, PyObject* y) {
      return PyNumber_InPlacePower(x, y, Py_None);
    };
    f[NB_INPLACE_RSHIFT] = PyNumber_InPlaceRshift;
    f[NB_INPLACE_SUBTRACT] = PyNumber_InPlaceSubtract;
    f[NB_INPLACE_TRUE_DIVIDE] = PyNumber_InPlaceTrueDivide;
    f[NB_INPLACE_XOR] = PyNumber_InPlaceXor;
    return f;
  }();
  if (op >= NB_INPLACE_ADD) note_act();
  return kFunctions[static_cast<size_t>(op)](a, b);
}

// A method of the operand's class that is written in Python; nullptr if there is none. Of tensors:
// one that is not PyTorch's own.
PyObject* operand_method(PyObject* object, PyObject* name) {
  if (name == nullptr) return nullptr;
  PyObject* found = python_method(object, name);
  if (found == nullptr || !is_tensor(object)) return found;
  return is_of_package(PyFunction_GET_GLOBALS(found), "torch") ? nullptr : found;
}

bool has_replaced_operator(const OperatorNames& op, PyObject* a, PyObject* b) {
  return (is_tensor(a) && (operand_method(a, op.left) || operand_method(a, op.inplace))) ||
         (is_tensor(b) && operand_method(b, op.right));
}

// PyTorch's own operators are what tensors have.
void guard_operators(Trace& trace, const OperatorNames& op, PyObject* a, PyObject* b) {
  if (is_tensor(a))
    for (PyObject* name : {op.left, op.inplace})
      if (name != nullptr) has_own_method(trace, a, name);
  if (b != nullptr && is_tensor(b) && op.right != nullptr) has_own_method(trace, b, op.right);
}

Result call_operand(Trace& trace, PyObject* method, PyObject* name, Value self, Value other) {
  const Value arguments[] = {self, other};
  return call_special(trace, method, name, std::span(arguments, other.object ? 2 : 1));
}

bool is_container(PyObject* object) {
  return PyList_CheckExact(object) || is_tuple_or_size(object) || PyDict_CheckExact(object) ||
         PySet_CheckExact(object) || PyFrozenSet_CheckExact(object) || PyDictViewSet_Check(object);
}

// What came of asking the operands' classes.
enum class Asked { not_in_python, answered, refused };

// A type of C's whose operators know nothing of objects of classes written in Python.
bool knows_only_its_own(PyObject* object, PyObject* other) {
  return (is_atom(object) || is_container(object)) &&
         !PyType_IsSubtype(Py_TYPE(other), Py_TYPE(object));
}

bool uses_default_equality(PyObject* object) {
  return Py_TYPE(object)->tp_richcompare == PyBaseObject_Type.tp_richcompare;
}

// Asks a class of C's (dict, in `Counter() == {}`), after one written in Python or before it.
Asked compare_in_c(Trace& trace, int op, Value self, Value other, Result* result) {
  PyObject* name = compare_names(op).left;
  if (_PyType_Lookup(Py_TYPE(self.object), name) == _PyType_Lookup(&PyBaseObject_Type, name) ||
      knows_only_its_own(self.object, other.object))
    return Asked::refused;
  for (const Value& side : {self, other}) {
    trace.use(side);
    guard_owners(trace, side.object);
  }
  {
    const Transparent transparent(&trace, true);
    result->object = Py_TYPE(self.object)->tp_richcompare(self.object, other.object, op);
  }
  trace.check_log();
  if (result->object == Py_NotImplemented) {
    Py_CLEAR(result->object);
    return Asked::refused;
  }
  if (result->object != nullptr) result->ref = trace.adopt(result->object);
  return Asked::answered;
}

// `__iadd__ = None` and the like: the class says that there is none.
// The trace ends there.
bool stops_if_blocked(Trace& trace, const OperatorNames& op, PyObject* a, PyObject* b) {
  for (PyObject* object : {a, b})
    for (PyObject* name : {op.left, op.right, op.inplace})
      if (name != nullptr && !is_tensor(object) &&
          _PyType_Lookup(Py_TYPE(object), name) == Py_None) {
        trace.stop(BreakReason::c_function, std::string("an operator of ") + Py_TYPE(a)->tp_name);
        return true;
      }
  return false;
}

// The __eq__ in Python of a class that has object.__ne__; nullptr: it is another case.
PyObject* equality_for_not_equal(PyObject* object) {
  static PyObject* of_object = _PyType_Lookup(&PyBaseObject_Type, compare_names(Py_NE).left);
  if (is_tensor(object) || _PyType_Lookup(Py_TYPE(object), compare_names(Py_NE).left) != of_object)
    return nullptr;
  return operand_method(object, compare_names(Py_EQ).left);
}

// `!=` as object.__ne__ does it.
Asked ask_not_equal(Trace& trace, PyObject* equal, Value self, Value other, Result* result) {
  const Result same = call_operand(trace, equal, compare_names(Py_EQ).left, self, other);
  if (same.object == nullptr) return Asked::answered;
  const Object held = Object::steal(same.object);
  if (same.object == Py_NotImplemented) return Asked::refused;
  const int is_true = truth(&trace, {same.object, same.ref});
  if (is_true >= 0) *result = {Py_NewRef(is_true ? Py_False : Py_True), 0};
  return Asked::answered;
}

// Python's protocol for a comparison when a class written in Python takes part.
Asked call_comparison(Trace& trace, int op, Value a, Value b, Result* result) {
  static constexpr int kSwapped[] = {Py_GT, Py_GE, Py_EQ, Py_NE, Py_LT, Py_LE};
  const OperatorNames& names = compare_names(op);
  if (stops_if_blocked(trace, names, a.object, b.object)) return Asked::not_in_python;
  PyObject* left = operand_method(a.object, names.left);
  PyObject* right = operand_method(b.object, names.right);
  PyObject* left_equal = op == Py_NE ? equality_for_not_equal(a.object) : nullptr;
  PyObject* right_equal = op == Py_NE ? equality_for_not_equal(b.object) : nullptr;
  if (!left && !right && !left_equal && !right_equal) return Asked::not_in_python;
  const auto ask = [&](bool is_left) {
    PyObject* method = is_left ? left : right;
    const Value self = is_left ? a : b, other = is_left ? b : a;
    if (PyObject* equal = is_left ? left_equal : right_equal)
      return ask_not_equal(trace, equal, self, other, result);
    if (method == nullptr)
      return compare_in_c(trace, is_left ? op : kSwapped[op], self, other, result);
    *result = call_operand(trace, method, is_left ? names.left : names.right, self, other);
    if (result->object != Py_NotImplemented) return Asked::answered;
    Py_CLEAR(result->object);
    result->ref = 0;
    return Asked::refused;
  };
  const bool right_first = Py_TYPE(a.object) != Py_TYPE(b.object) &&
                           PyType_IsSubtype(Py_TYPE(b.object), Py_TYPE(a.object));
  const Asked first = ask(!right_first);
  return first == Asked::answered ? first : ask(right_first);
}

// Asks a class of C's, once those written in Python have refused: they are not asked twice.
bool ask_operand_in_c(PyObject* name, PyObject* self, PyObject* other, Result* result) {
  PyObject* method = name == nullptr ? nullptr : _PyType_Lookup(Py_TYPE(self), name);
  if (method == nullptr || knows_only_its_own(self, other)) return false;
  const descrgetfunc get = Py_TYPE(method)->tp_descr_get;
  const Object bound =
      get == nullptr ? Object::share(method)
                     : Object::steal(get(method, self, reinterpret_cast<PyObject*>(Py_TYPE(self))));
  if (bound) result->object = PyObject_CallOneArg(bound.get(), other);
  if (result->object != Py_NotImplemented) return true;
  Py_CLEAR(result->object);
  return false;
}

// Python's protocol for an operator when a class written in Python takes part.
Asked call_operator(Trace& trace, const OperatorNames& op, Value a, Value b, Result* result) {
  if (stops_if_blocked(trace, op, a.object, b.object)) return Asked::not_in_python;
  PyObject* inplace = operand_method(a.object, op.inplace);
  PyObject* left = operand_method(a.object, op.left);
  const bool same_type = Py_TYPE(a.object) == Py_TYPE(b.object);
  PyObject* right = same_type ? nullptr : operand_method(b.object, op.right);
  if (!inplace && !left && !right) return Asked::not_in_python;
  bool right_first = right != nullptr && PyType_IsSubtype(Py_TYPE(b.object), Py_TYPE(a.object));
  // A type in C that knows of other objects is asked before them: numpy's arrays.
  if (!inplace && !left && !right_first && !is_tensor(a.object) &&
      _PyType_Lookup(Py_TYPE(a.object), op.left) != nullptr &&
      !knows_only_its_own(a.object, b.object)) {
    trace.stop(BreakReason::c_function,
               std::string("an operator of ") + Py_TYPE(a.object)->tp_name);
    return Asked::not_in_python;
  }
  // A reflected method that was only inherited has no precedence.
  if (right_first && left != nullptr)
    right_first = _PyType_Lookup(Py_TYPE(a.object), op.right) != right;
  struct Attempt {
    PyObject* method;
    PyObject* name;
    Value self, other;
  };
  const Attempt first{inplace, op.inplace, a, b}, on_left{left, op.left, a, b},
      on_right{right, op.right, b, a};
  for (const Attempt& attempt :
       right_first ? std::array{first, on_right, on_left} : std::array{first, on_left, on_right}) {
    if (attempt.method == nullptr) continue;
    *result = call_operand(trace, attempt.method, attempt.name, attempt.self, attempt.other);
    if (result->object != Py_NotImplemented) return Asked::answered;
    Py_DECREF(result->object);
    *result = {};
  }
  const bool no_more_to_ask =
      (left != nullptr || knows_only_its_own(a.object, b.object)) &&
      (right != nullptr || same_type || knows_only_its_own(b.object, a.object) ||
       _PyType_Lookup(Py_TYPE(b.object), op.right) == nullptr);
  if (no_more_to_ask) return Asked::refused;
  trace.stop(BreakReason::c_function, std::string("an operator of ") + Py_TYPE(a.object)->tp_name);
  if (left == nullptr && ask_operand_in_c(op.left, a.object, b.object, result))
    return Asked::answered;
  if (right == nullptr && !same_type && ask_operand_in_c(op.right, b.object, a.object, result))
    return Asked::answered;
  return Asked::refused;
}

const char* symbol_of(int op) {
  static constexpr const char* kSymbols[] = {
      "+",  "&",  "//",  "<<",  "@",  "*",  "%",  "|",  "** or pow()", ">>",  "-",  "/",  "^",
      "+=", "&=", "//=", "<<=", "@=", "*=", "%=", "|=", "**=",         ">>=", "-=", "/=", "^="};
  return kSymbols[op];
}

// All elements are looked at, so that what is made of them is made of known things.
void touch(Trace& trace, Value container) {
  std::vector<Result> items;
  if (PyList_CheckExact(container.object) || is_tuple_or_size(container.object)) {
    unpack(&trace, container, items);
  } else if (PyDictViewSet_Check(container.object)) {
    const Result iterator = get_iter(&trace, container);  // looks at all elements
    Py_XDECREF(iterator.object);
  } else {
    trace.use(container);
  }
  for (const Result& item : items) {
    if (is_constant(item.object)) trace.use({item.object, item.ref});
    Py_DECREF(item.object);
  }
}

// list *= n, set |= other, dict |= other: repeated as they are, on contents that are known.
Result change_container(Trace& trace, int op, Value a, Value b) {
  touch(trace, b);
  trace.own(a);
  PyObject* name = operator_names(op).inplace;
  PyObject* method = _PyType_Lookup(Py_TYPE(a.object), name);
  if (method == nullptr || !is_fixed(method)) {
    trace.stop(BreakReason::mutation, Py_TYPE(a.object)->tp_name);
  } else {
    const Value inputs[] = {{method, 0}, a, b};
    trace.effect_call(inputs, nullptr);
  }
  PyObject* result = compute(op, a.object, b.object);
  if (result == nullptr) trace.stop(BreakReason::raised, symbol_of(op));
  return {result, result == nullptr ? 0 : trace.adopt(result)};
}

// [n] * 3 of numbers that may be others in the next call.
std::optional<Result> repeat_elements(Trace& trace, Value a, Value b) {
  if (PyLong_CheckExact(a.object)) std::swap(a, b);
  if (!PyLong_CheckExact(b.object) || !has_lazy_elements(trace, a)) return std::nullopt;
  trace.use(b);
  PyObject* product = PyNumber_Multiply(a.object, b.object);
  if (product == nullptr) return Result{};
  std::vector<Result> items;
  unpack(&trace, a, items);
  std::vector<Value> elements;
  for (Py_ssize_t i = 0; i < Py_SIZE(product); ++i) {
    const Result& item = items[static_cast<size_t>(i) % items.size()];
    elements.push_back({item.object, item.ref});
  }
  const Result result = made_of(trace, elements, product);
  release(items);
  return result;
}

Result binary_on_containers(Trace& trace, int op, Value a, Value b) {
  if (op == NB_INPLACE_ADD && PyList_CheckExact(a.object)) {
    if (!list_extend(&trace, a, b)) return {};
    return {Py_NewRef(a.object), a.ref};
  }
  const bool can_change =
      PyList_CheckExact(a.object) || PyDict_CheckExact(a.object) || PySet_CheckExact(a.object);
  if (op >= NB_INPLACE_ADD && can_change) return change_container(trace, op, a, b);
  if (op == NB_ADD && (has_lazy_elements(trace, a) || has_lazy_elements(trace, b)))
    if (PyObject* sum = compute(op, a.object, b.object)) {
      std::vector<Result> items;
      unpack(&trace, a, items);
      unpack(&trace, b, items);
      std::vector<Value> elements;
      for (const Result& item : items) elements.push_back({item.object, item.ref});
      const Result result = made_of(trace, elements, sum);
      release(items);
      return result;
    }
  if (op == NB_MULTIPLY)
    if (const std::optional<Result> repeated = repeat_elements(trace, a, b)) return *repeated;
  touch(trace, a);
  touch(trace, b);
  const Transparent transparent(&trace, true);
  PyObject* result = compute(op, a.object, b.object);
  return {result, result == nullptr ? 0 : trace.adopt(result)};
}

// number <op> tensor, where the number's own class knows nothing of tensors.
PyObject* call_reflected(const OperatorNames& op, PyObject* number, PyObject* tensor) {
  if (op.right == nullptr) return Py_NewRef(Py_NotImplemented);
  return PyObject_CallMethodOneArg(tensor, op.right, number);
}

// `compute_it` gets the operands, `op` says what it does.
Result on_tensors(Trace& trace, const OperatorNames& op, Value a, Value b, const auto& compute_it) {
  // Its own methods may be asked, after or before the tensor's.
  for (const Value& v : {a, b})
    if (v.object != nullptr && !is_tensor(v.object) && !is_constant(v.object) &&
        !is_container(v.object))
      trace.stop(BreakReason::c_function,
                 std::string("an operator of ") + Py_TYPE(v.object)->tp_name);
  guard_operators(trace, op, a.object, b.object);
  const Value operands[] = {a, b};
  PyObject* result = call_on_tensors(
      trace, std::span(operands, b.object != nullptr ? 2 : 1), [&](std::span<const Value> given) {
        PyObject* left = given[0].object;
        PyObject* right = given.size() > 1 ? given[1].object : nullptr;
        // A stand-in on the left has operators of its own.
        return left == a.object ? compute_it(left, right) : call_reflected(op, left, right);
      });
  trace.check_log();
  return {result, result == nullptr ? 0 : trace.adopt(result)};
}

// '%s' % x: asks nobody but str, whatever x's class has.
bool is_formatting(int op, PyObject* a, PyObject* b) {
  if (op != NB_REMAINDER && op != NB_INPLACE_REMAINDER) return false;
  return (PyUnicode_CheckExact(a) && !PyUnicode_Check(b)) ||
         (PyBytes_CheckExact(a) && !PyBytes_Check(b));
}

Result format_by(Trace& trace, int op, Value text, Value value) {
  trace.use(text);
  trace.use(value);
  PyObject* result;
  {
    const Transparent transparent(&trace, true);
    result = compute(op, text.object, value.object);
  }
  trace.check_log();
  return {result, result == nullptr ? 0 : trace.adopt(result)};
}

}  // namespace

Result binary(Trace* trace, int op, Value a, Value b) {
  if (!is_following(trace)) return {compute(op, a.object, b.object), 0};
  if (is_lazy_pair(a.object, b.object)) {
    PyObject* result = compute(op, a.object, b.object);
    if (result == nullptr || !is_atom(result)) {
      trace->use(a);
      trace->use(b);
      return {result, 0};
    }
    return {result, trace->scalar(ScalarOp::binary, op, a, b, result)};
  }
  const bool has_tensor = is_tensor(a.object) || is_tensor(b.object);
  if (!has_tensor && is_formatting(op, a.object, b.object)) return format_by(*trace, op, a, b);
  if (has_tensor && !operand_method(a.object, operator_names(op).left) &&
      !has_replaced_operator(operator_names(op), a.object, b.object))
    return on_tensors(*trace, operator_names(op), a, b,
                      [&](PyObject* left, PyObject* right) { return compute(op, left, right); });
  Result result;
  switch (call_operator(*trace, operator_names(op), a, b, &result)) {
    case Asked::answered: return result;
    case Asked::refused:
      PyErr_Format(PyExc_TypeError, "unsupported operand type(s) for %s: '%.100s' and '%.100s'",
                   symbol_of(op), Py_TYPE(a.object)->tp_name, Py_TYPE(b.object)->tp_name);
      return {};
    case Asked::not_in_python: break;
  }
  if (is_container(a.object) || is_container(b.object))
    return binary_on_containers(*trace, op, a, b);
  trace->use(a);
  trace->use(b);
  if (!is_constant(a.object) || !is_constant(b.object))
    trace->stop(BreakReason::c_function,
                std::string("an operator of ") + Py_TYPE(a.object)->tp_name);
  result.object = compute(op, a.object, b.object);
  if (result.object != nullptr) result.ref = trace->adopt(result.object);
  return result;
}

Result unary(Trace* trace, ScalarOp op, Value a) {
  const auto compute_it = [&]() -> PyObject* {
    switch (op) {
      case ScalarOp::unary_negative: return PyNumber_Negative(a.object);
      case ScalarOp::unary_positive: return PyNumber_Positive(a.object);
      case ScalarOp::unary_not: return PyBool_FromLong(PyObject_Not(a.object));
      default: return PyNumber_Invert(a.object);
    }
  };
  if (!is_following(trace)) return {compute_it(), 0};
  if (is_number(a.object)) {
    PyObject* result = compute_it();
    if (result == nullptr) {
      trace->use(a);
      return {};
    }
    return {result, trace->scalar(op, 0, a, {}, result)};
  }
  if (PyObject* method = operand_method(a.object, unary_name(op)))
    return call_operand(*trace, method, unary_name(op), a, {});
  if (is_tensor(a.object))
    return on_tensors(*trace, {unary_name(op), nullptr, nullptr}, a, {},
                      [&](PyObject*, PyObject*) { return compute_it(); });
  trace->use(a);
  PyObject* result = compute_it();
  return {result, result == nullptr ? 0 : trace->adopt(result)};
}

Result compare(Trace* trace, int op, Value a, Value b) {
  const auto compute_it = [&] { return PyObject_RichCompare(a.object, b.object, op); };
  if (!is_following(trace)) return {compute_it(), 0};
  if (is_lazy_pair(a.object, b.object)) {
    PyObject* result = compute_it();
    return {result, trace->scalar(ScalarOp::compare, op, a, b, result)};
  }
  if ((op == Py_EQ || op == Py_NE) &&
      (has_lazy_elements(*trace, a) || has_lazy_elements(*trace, b)))
    if (const std::optional<bool> equal = equal_elements(*trace, a, b))
      return {PyBool_FromLong(*equal == (op == Py_EQ)), 0};
  if ((is_tensor(a.object) || is_tensor(b.object)) &&
      !has_replaced_operator(compare_names(op), a.object, b.object))
    return on_tensors(*trace, compare_names(op), a, b, [&](PyObject* left, PyObject* right) {
      return PyObject_RichCompare(left, right, op);
    });
  Result result;
  const Asked asked = call_comparison(*trace, op, a, b, &result);
  if (asked == Asked::answered) return result;
  const bool by_identity = op == Py_EQ || op == Py_NE;
  if (asked == Asked::refused) {
    if (by_identity) return is_same(trace, a, b, op == Py_NE);
    static constexpr const char* kSymbols[] = {"<", "<=", "==", "!=", ">", ">="};
    PyErr_Format(PyExc_TypeError, "'%s' not supported between instances of '%.100s' and '%.100s'",
                 kSymbols[op], Py_TYPE(a.object)->tp_name, Py_TYPE(b.object)->tp_name);
    return {};
  }
  if (by_identity && uses_default_equality(a.object) && uses_default_equality(b.object))
    return is_same(trace, a, b, op == Py_NE);
  for (const Value& side : {a, b}) {
    if (PyDictViewSet_Check(side.object))
      touch(*trace, side);
    else
      trace->use(side);
    guard_owners(*trace, side.object);
  }
  {
    const Transparent transparent(trace, true);  // elements may have an __eq__ in Python
    result.object = compute_it();
  }
  trace->check_log();
  if (result.object != nullptr) result.ref = trace->adopt(result.object);
  return result;
}

Result is_same(Trace* trace, Value a, Value b, bool negate) {
  const bool same = a.object == b.object;
  if (is_following(trace)) {
    const bool a_by_value = is_constant(a.object), b_by_value = is_constant(b.object);
    const bool is_none = a.object == Py_None || b.object == Py_None;
    const auto is_told_by_type = [](PyObject* object) {
      return is_number(object) || PyTuple_Check(object);  // whatever its elements are
    };
    if (is_none && !same && (is_told_by_type(a.object) || is_told_by_type(b.object))) {
      trace->guard_type(a);
      trace->guard_type(b);
    } else if (a_by_value && b_by_value) {
      trace->use(a);
      trace->use(b);
    } else if (a_by_value || b_by_value) {
      // An object is not None, or not some type: it is enough that it stays of its type.
      const Value constant = a_by_value ? a : b, other = a_by_value ? b : a;
      trace->use(constant);
      trace->guard_type(other);
    } else {
      trace->guard_alias(a, b, same);
    }
  }
  return {Py_NewRef(same != negate ? Py_True : Py_False), 0};
}

bool check_length(Trace& trace, Result* length) {
  const Value value{length->object, length->ref};
  if (PyLong_CheckExact(length->object)) {
    const auto holds = [&](int op, Py_ssize_t bound) {
      const Object number = Object::steal(PyLong_FromSsize_t(bound));
      const Result fits = compare(&trace, op, value, {number.get(), 0});
      const Object held = Object::steal(fits.object);
      return fits.object == nullptr ? -1 : truth(&trace, {fits.object, fits.ref});
    };
    const int is_least = holds(Py_GE, 0);
    const int is_size = is_least == 1 ? holds(Py_LE, PY_SSIZE_T_MAX) : is_least;
    if (is_size < 0) return false;
    if (is_size == 1) return true;
  }
  trace.use(value);
  const Object number = Object::steal(PyNumber_Index(length->object));
  if (!number) return false;
  if (_PyLong_Sign(number.get()) < 0) {
    PyErr_SetString(PyExc_ValueError, "__len__() should return >= 0");
    return false;
  }
  const Py_ssize_t size = PyNumber_AsSsize_t(number.get(), PyExc_OverflowError);
  if (size < 0) return false;
  Py_SETREF(length->object, PyLong_FromSsize_t(size));
  length->ref = 0;
  return true;
}

namespace {

// `if mask.any()`: whether anything is selected at all.
bool asks_for_any(const TensorLog& log, LogValue logged) {
  return logged >= 0 && log.is_check(logged, true) && log.is_check(logged, false);
}

// `assert x[0] > 0`, or `if not valid.all(): ...`, after which torch.distributions raises an error
// in a function of its own: what has been valid is.
bool is_passed_check(Trace& trace, Value tensor, LogValue logged, std::optional<bool> passes) {
  if (!passes && asks_for_any(trace.log(), logged)) return true;
  for (const bool truth : {true, false})
    if (!passes && trace.log().is_check(logged, truth)) passes = truth;
  if (!passes) return false;
  const Unfollowed unfollowed(&trace, false);
  const int is_true = PyObject_IsTrue(tensor.object);
  PyErr_Clear();
  return is_true == (*passes ? 1 : 0);
}

// Whether a branch on a tensor is taken for what it was. To end a training step in the middle costs
// more than to guess, a counter or flag (of averages, of a first call) is most often what it was,
// and so is what positions and masks are like. A loop until some numbers are such and such is not
// rolled out by guesses.
bool is_guessed(Trace& trace, Value tensor, std::optional<bool> passes) {
  if (!trace.guesses.are_allowed) return false;
  if (trace.backward.any) return true;
  const LogValue logged = trace.log().value_of(tensor.object);
  if (logged < 0) return false;
  const TensorLog& log = trace.log();
  if (log.is_gamble(logged)) return false;
  if (log.is_single(logged)) return trace.may_guess_here(1000);  // one for each parameter
  if (log.has_saved_hooks()) return false;  // they would see the run that turns out to be none
  if (is_passed_check(trace, tensor, logged, passes)) return trace.may_guess_here(100);
  return log.is_whole(logged) && trace.may_guess_here(8);
}

}  // namespace

int truth(Trace* trace, Value value, std::optional<bool> passes) {
  if (!is_following(trace)) return PyObject_IsTrue(value.object);
  if (is_tensor(value.object) && has_own_method(*trace, value.object, names().bool_)) {
    if (is_fixed_tensor(*trace, value)) {
      const Unfollowed unfollowed(trace, false);
      return PyObject_IsTrue(value.object);
    }
    if (is_guessed(*trace, value, passes)) {
      // What is selected is computed op by op in any case: better so than in many pieces.
      trace->guesses.about_flag =
          trace->guesses.about_flag ||
          (!trace->backward.any &&
           !asks_for_any(trace->log(), trace->log().value_of(value.object)));
      const Result number = read_number(*trace, value);
      const Object held = Object::steal(number.object);
      if (held) return truth(trace, {held.get(), number.ref});
      PyErr_Clear();  // it has no truth either, for which there is another message
    }
    trace->stop(BreakReason::tensor_branch, "");
    return PyObject_IsTrue(value.object);
  }
  for (PyObject* name : {names().bool_, names().len}) {
    if (_PyType_Lookup(Py_TYPE(value.object), name) == Py_None) {  // blocked: raises
      trace->guard_type(value);
      return PyObject_IsTrue(value.object);
    }
    PyObject* method = operand_method(value.object, name);
    if (method == nullptr) continue;
    Result result = call_operand(*trace, method, name, value, {});
    if (result.object == nullptr) return -1;
    const bool is_answer =
        name == names().len ? check_length(*trace, &result) : PyBool_Check(result.object) != 0;
    const Object held = Object::steal(result.object);
    if (is_answer) return truth(trace, {held.get(), result.ref});
    if (name == names().bool_) {
      trace->use({held.get(), result.ref});
      PyErr_Format(PyExc_TypeError, "__bool__ should return bool, returned %s",
                   Py_TYPE(held.get())->tp_name);
    }
    return -1;
  }
  const int result = PyObject_IsTrue(value.object);
  if (result >= 0) trace->guard_truth(value, result != 0);
  return result;
}

namespace {

PyObject* format_plainly(PyObject* object, int conversion, PyObject* spec) {
  Object text = Object::share(object);
  if (conversion == 1) text = Object::steal(PyObject_Str(object));
  if (conversion == 2) text = Object::steal(PyObject_Repr(object));
  if (conversion == 3) text = Object::steal(PyObject_ASCII(object));
  if (!text) return nullptr;
  if (spec == nullptr && PyUnicode_CheckExact(text.get())) return text.release();
  return PyObject_Format(text.get(), spec);
}

// Text that no cached call makes: most often it is for an error that is not raised. As an object of
// its own it is told from other text; no segment ends while it is about, and nothing may look at
// it.
Result passing_text(Trace& trace, Object text) {
  if (!text) return {};
  const Py_ssize_t length = PyUnicode_GET_LENGTH(text.get());
  Object own = Object::steal(PyUnicode_New(length, PyUnicode_MAX_CHAR_VALUE(text.get())));
  if (!own || length == 0 ||
      PyUnicode_CopyCharacters(own.get(), 0, text.get(), 0, length) != length) {
    PyErr_Clear();
    trace.stop(BreakReason::data_dependent, "formatting a tensor");
    return {text.release(), 0};
  }
  trace.transient(own.get());
  const Ref ref = trace.ref_of(own.get());
  return {own.release(), ref};
}

bool is_passing_text(Trace* trace, const Value& part) {
  return is_following(trace) && PyUnicode_CheckExact(part.object) && trace->is_tracked(part.object);
}

Result format_tensor(Trace& trace, Value tensor, int conversion, Value spec) {
  static PyObject* const methods[] = {PyUnicode_InternFromString("__format__"),
                                      PyUnicode_InternFromString("__repr__"),
                                      PyUnicode_InternFromString("__str__")};
  for (PyObject* name : methods)
    if (!has_own_method(trace, tensor.object, name))
      trace.stop(BreakReason::c_callback, text_of(name));
  if (tensors().refuse(tensor.object))
    trace.stop(BreakReason::data_dependent, "formatting a tensor");
  if (!trace.active()) return {format_plainly(tensor.object, conversion, spec.object), 0};
  Object text;
  {
    // What tensors show of themselves is code of PyTorch's, and of what it takes to print.
    const Unfollowed unfollowed(&trace, false, Trust::everybody);
    text = Object::steal(format_plainly(tensor.object, conversion, spec.object));
  }
  return passing_text(trace, std::move(text));
}

}  // namespace

Result format(Trace* trace, Value value, int conversion, Value spec) {
  if (is_following(trace)) {
    if (spec.object != nullptr) trace->use(spec);
    if (is_tensor(value.object)) return format_tensor(*trace, value, conversion, spec);
    trace->use(value);
  }
  return {format_plainly(value.object, conversion, spec.object), 0};
}

Result join_strings(Trace* trace, std::span<const Value> parts) {
  Object list = Object::steal(PyTuple_New(static_cast<Py_ssize_t>(parts.size())));
  bool is_passing = false;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (is_passing_text(trace, parts[i]))
      is_passing = true;
    else if (is_following(trace))
      trace->use(parts[i]);
    PyTuple_SET_ITEM(list.get(), static_cast<Py_ssize_t>(i), Py_NewRef(parts[i].object));
  }
  Object empty = Object::steal(PyUnicode_FromString(""));
  Object text = Object::steal(PyUnicode_Join(empty.get(), list.get()));
  if (is_passing && is_following(trace)) return passing_text(*trace, std::move(text));
  return {text.release(), 0};
}

}  // namespace smelt::bytecode
