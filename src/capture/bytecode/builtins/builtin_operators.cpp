// Python's `operator`: its functions are the operators themselves. And functions in C that change a
// list which they are given.
#include <opcode.h>

#include <algorithm>
#include <string>
#include <unordered_map>

#include "capture/bytecode/builtins/builtin_call.h"

namespace smelt::bytecode {

bool is_operation(std::string_view name) {
  return name != "setitem" && name != "delitem" && name != "iconcat" && name != "call";
}

bool call_operator_function(BuiltinCall& c, std::string_view name, Result* result) {
  static const std::unordered_map<std::string_view, int> binaries{
      {"add", NB_ADD},
      {"sub", NB_SUBTRACT},
      {"mul", NB_MULTIPLY},
      {"truediv", NB_TRUE_DIVIDE},
      {"floordiv", NB_FLOOR_DIVIDE},
      {"mod", NB_REMAINDER},
      {"pow", NB_POWER},
      {"matmul", NB_MATRIX_MULTIPLY},
      {"and_", NB_AND},
      {"or_", NB_OR},
      {"xor", NB_XOR},
      {"lshift", NB_LSHIFT},
      {"rshift", NB_RSHIFT},
      {"iadd", NB_INPLACE_ADD},
      {"isub", NB_INPLACE_SUBTRACT},
      {"imul", NB_INPLACE_MULTIPLY},
      {"itruediv", NB_INPLACE_TRUE_DIVIDE},
      {"ifloordiv", NB_INPLACE_FLOOR_DIVIDE},
      {"imod", NB_INPLACE_REMAINDER},
      {"ipow", NB_INPLACE_POWER},
      {"iand", NB_INPLACE_AND},
      {"ior", NB_INPLACE_OR},
      {"ixor", NB_INPLACE_XOR},
      {"imatmul", NB_INPLACE_MATRIX_MULTIPLY}};
  static const std::unordered_map<std::string_view, int> compares{
      {"lt", Py_LT}, {"le", Py_LE}, {"eq", Py_EQ}, {"ne", Py_NE}, {"gt", Py_GT}, {"ge", Py_GE}};
  static const std::unordered_map<std::string_view, ScalarOp> unaries{
      {"neg", ScalarOp::unary_negative},
      {"pos", ScalarOp::unary_positive},
      {"invert", ScalarOp::unary_invert},
      {"inv", ScalarOp::unary_invert}};
  Trace* trace = &c.trace;
  if (name == "call" && c.positional() > 0)
    return *result = call(trace, c.argument(0), c.arguments.subspan(1), c.keywords), true;
  if (c.has_keywords()) return c.plainly(result);
  if (c.count() == 2) {
    const Value a = c.argument(0), b = c.argument(1);
    if (const auto op = binaries.find(name); op != binaries.end())
      return *result = binary(trace, op->second, a, b), true;
    if (const auto op = compares.find(name); op != compares.end())
      return *result = compare(trace, op->second, a, b), true;
    if ((name == "concat" || name == "iconcat") && PySequence_Check(a.object) &&
        PySequence_Check(b.object))
      return *result = binary(trace, name == "concat" ? NB_ADD : NB_INPLACE_ADD, a, b), true;
    if (name == "getitem") return *result = get_item(trace, a, b), true;
    if (name == "contains") return *result = contains(trace, a, b, false), true;
    if (name == "is_" || name == "is_not")
      return *result = is_same(trace, a, b, name == "is_not"), true;
    if (name == "delitem") return give_none(result, delete_item(trace, a, b));
  }
  if (name == "setitem" && c.count() == 3)
    return give_none(result, set_item(trace, c.argument(0), c.argument(1), c.argument(2)));
  if (c.count() == 1) {
    const Value a = c.argument(0);
    if (name == "abs" && call_on_operands(c, name, result)) return true;
    if (const auto op = unaries.find(name); op != unaries.end())
      return *result = unary(trace, op->second, a), true;
    if (name == "truth" || name == "not_") {
      const int found = truth(trace, a);
      if (found >= 0) give(result, (found == 1) == (name == "truth") ? Py_True : Py_False);
      return true;
    }
  }
  return is_operation(name) && c.on_constants(result);
}

bool change_list(BuiltinCall& c, Result* result) {
  if (c.count() == 0 || c.has_keywords() || !PyList_CheckExact(c.argument(0).object)) return false;
  const Value list = c.trace.value(c.argument(0).object, c.argument(0).ref);
  std::vector<Value> inputs{c.callee, list};
  for (const Value& v : c.arguments.subspan(1)) {
    if (is_constant(v.object))
      c.trace.use(v);
    else if (!c.trace.is_tracked(v.object))
      return false;
    else
      c.touch(v);  // it is compared with the others
    inputs.push_back(v);
  }
  c.trace.own(list);
  c.trace.effect_call(inputs, nullptr);
  {
    const Repeated repeated(&c.trace);  // comparisons
    result->object = call_plainly(c.callee.object, c.arguments, nullptr);
  }
  c.trace.check_log();
  if (result->object == nullptr)
    c.trace.stop(BreakReason::raised, "a change of a list");
  else
    result->ref = c.trace.adopt(result->object);
  return true;
}

namespace {

// What the getter was made of: names, keys, or a method's name and arguments. Empty: it is not
// told.
Object parts_of(PyObject* getter) {
  const Object state = Object::steal(PyObject_CallMethod(getter, "__reduce__", nullptr));
  PyErr_Clear();
  if (!state || PyTuple_GET_SIZE(state.get()) != 2 ||
      PyTuple_GET_ITEM(state.get(), 0) != reinterpret_cast<PyObject*>(Py_TYPE(getter)))
    return {};
  return Object::share(PyTuple_GET_ITEM(state.get(), 1));
}

std::string_view getter_name(PyObject* getter) {
  return std::string_view(Py_TYPE(getter)->tp_name).substr(sizeof("operator.") - 1);
}

// object.a.b.c
Result get_dotted(Trace& trace, Value object, PyObject* path) {
  const Object dot = Object::steal(PyUnicode_FromString("."));
  const Object parts = Object::steal(PyUnicode_Split(path, dot.get(), -1));
  if (!parts) return {};
  Result found{Py_NewRef(object.object), object.ref};
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(parts.get()) && found.object != nullptr; ++i) {
    PyObject* name = Py_NewRef(PyList_GET_ITEM(parts.get(), i));
    PyUnicode_InternInPlace(&name);
    const Object held = Object::steal(name);
    trace.hold(name);
    const Object from = Object::steal(found.object);
    found = get_attribute(&trace, {from.get(), found.ref}, name);
  }
  return found;
}

Result call_named(Trace& trace, Value object, std::span<const Value> name_and_arguments) {
  const Result method = get_attribute(&trace, object, name_and_arguments[0].object);
  const Object held = Object::steal(method.object);
  if (!held) return {};
  return call(&trace, {method.object, method.ref}, name_and_arguments.subspan(1), nullptr);
}

Result get_each(Trace& trace, Value object, std::span<const Value> parts, bool items) {
  std::vector<Result> found;
  for (const Value& part : parts) {
    const Result one =
        items ? get_item(&trace, object, part) : get_dotted(trace, object, part.object);
    if (one.object == nullptr) {
      release(found);
      return {};
    }
    found.push_back(one);
  }
  if (found.size() == 1) return found[0];
  std::vector<Value> values;
  for (const Result& one : found) values.push_back({one.object, one.ref});
  const Result tuple = build_tuple(&trace, values);
  release(found);
  return tuple;
}

}  // namespace

bool is_getter_type(const PyTypeObject* type) {
  const std::string_view name = type->tp_name;
  return name == "operator.itemgetter" || name == "operator.attrgetter" ||
         name == "operator.methodcaller";
}

bool make_getter(BuiltinCall& c, Result* result) {
  if (c.has_keywords() || c.count() == 0) return false;
  std::vector<Value> inputs{c.callee};
  for (const Value& v : c.arguments) {
    if (is_constant(v.object))
      c.trace.use(v);
    else if (!c.trace.is_tracked(v.object))
      return false;
    c.trace.hold(v.object);
    inputs.push_back(v);
  }
  result->object = call_plainly(c.callee.object, c.arguments, nullptr);
  if (result->object != nullptr) result->ref = c.trace.make(StepKind::call, inputs, result->object);
  return true;
}

bool call_getter(BuiltinCall& c, Result* result) {
  const Object parts = parts_of(c.callee.object);
  if (!parts || c.count() != 1 || c.has_keywords() || !c.trace.is_tracked(c.callee.object))
    return false;
  std::vector<Value> values;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(parts.get()); ++i) {
    const Value part = c.trace.value(PyTuple_GET_ITEM(parts.get(), i));
    if (part.ref == 0 && !is_constant(part.object)) return false;
    values.push_back(part);
  }
  c.trace.guard_same(c.callee);
  c.trace.hold(parts.get());
  const std::string_view name = getter_name(c.callee.object);
  *result = name == "methodcaller" ? call_named(c.trace, c.argument(0), values)
                                   : get_each(c.trace, c.argument(0), values, name == "itemgetter");
  return true;
}

}  // namespace smelt::bytecode
