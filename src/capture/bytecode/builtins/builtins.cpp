// Builtin functions and the methods of builtin types that a trace can go through: each by what it
// depends on. Anything that is not here ends the graph.
#include <opcode.h>

#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "capture/bytecode/builtins/builtin_call.h"
#include "capture/bytecode/cpython/known_types.h"
#include "capture/bytecode/cpython/names.h"
#include "capture/bytecode/cpython/private_api.h"
#include "capture/bytecode/trace/tracing.h"
#include "capture/bytecode/values/sizes.h"

namespace smelt::bytecode {
namespace {

using Handler = bool (*)(BuiltinCall&, Result*);
using Table = std::unordered_map<std::string_view, Handler>;
using Names_ = std::unordered_set<std::string_view>;

// -- builtins

// PyTorch's own method of a tensor.
bool is_own_of_tensor(Trace& trace, Value v, PyObject* name) {
  return tensors().is_tensor(v.object) && has_own_method(trace, v.object, name);
}

bool call_len(BuiltinCall& c, Result* result) {
  if (c.count() != 1) return c.plainly(result);
  const Value v = behind_proxy(c.trace, c.argument(0));
  if (PyObject* method = python_method(v.object, names().len);
      method && !is_own_of_tensor(c.trace, v, names().len)) {
    *result = c.call_special(method, names().len, v);
    if (result->object != nullptr && !check_length(c.trace, result)) Py_CLEAR(result->object);
    return true;
  }
  if (tensors().is_tensor(v.object))
    if (const std::optional<Result> size = read_varying_size(c.trace, v, 0)) {
      *result = *size;
      return true;
    }
  if (tensors().is_tensor(v.object) || is_atom(v.object))
    c.trace.use(v);
  else if (PyList_Check(v.object) || PyTuple_Check(v.object) || PyDict_Check(v.object))
    c.trace.guard_length(v);
  else
    c.trace.use(v);
  return c.plainly(result);
}

bool call_getattr(BuiltinCall& c, Result* result) {
  if (c.count() < 2 || c.count() > 3 || !PyUnicode_Check(c.argument(1).object))
    return c.plainly(result);
  c.trace.use(c.argument(1));
  *result = get_attribute(&c.trace, c.argument(0), c.argument(1).object);
  if (result->object == nullptr && c.count() == 3 && PyErr_ExceptionMatches(PyExc_AttributeError)) {
    PyErr_Clear();
    *result = {Py_NewRef(c.argument(2).object), c.argument(2).ref};
  }
  return true;
}

bool call_hasattr(BuiltinCall& c, Result* result) {
  if (c.count() != 2 || !PyUnicode_Check(c.argument(1).object)) return c.plainly(result);
  c.trace.use(c.argument(1));
  const Result found = get_attribute(&c.trace, c.argument(0), c.argument(1).object);
  if (found.object == nullptr) {
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return true;
    PyErr_Clear();
  }
  *result = {Py_NewRef(found.object ? Py_True : Py_False), 0};
  Py_XDECREF(found.object);
  return true;
}

bool call_setattr(BuiltinCall& c, Result* result) {
  if (c.count() != 3 || !PyUnicode_Check(c.argument(1).object)) return c.plainly(result);
  c.trace.use(c.argument(1));
  if (set_attribute(&c.trace, c.argument(0), c.argument(1).object, c.argument(2)))
    *result = {Py_NewRef(Py_None), 0};
  return true;
}

bool call_delattr(BuiltinCall& c, Result* result) {
  if (c.count() != 2 || !PyUnicode_Check(c.argument(1).object)) return c.plainly(result);
  c.trace.use(c.argument(1));
  if (set_attribute(&c.trace, c.argument(0), c.argument(1).object, {}))
    *result = {Py_NewRef(Py_None), 0};
  return true;
}

// vars(object)
bool call_vars(BuiltinCall& c, Result* result) {
  if (c.count() != 1) return false;
  *result = get_attribute(&c.trace, c.argument(0), names().dict);
  if (result->object == nullptr && PyErr_ExceptionMatches(PyExc_AttributeError))
    PyErr_SetString(PyExc_TypeError, "vars() argument must have __dict__ attribute");
  return true;
}

bool call_iter(BuiltinCall& c, Result* result) {
  if (c.count() == 2) {  // a function that is called until it gives the second
    if (!is_constant(c.argument(1).object) || !may_call_back(c.trace, c.argument(0))) return false;
    c.trace.use(c.argument(1));
    c.trace.hold(c.argument(0).object);
    result->object = call_plainly(c.callee.object, c.arguments, nullptr);
    if (result->object == nullptr) return true;
    c.trace.transient(result->object);
    result->ref = c.trace.ref_of(result->object);
    return true;
  }
  if (c.count() != 1) return false;
  *result = get_iter(&c.trace, c.argument(0));
  return true;
}

bool call_next(BuiltinCall& c, Result* result) {
  if (c.count() < 1 || c.count() > 2) return c.plainly(result);
  *result = advance(&c.trace, c.argument(0));
  if (result->object != nullptr) return true;
  const bool has_raised = PyErr_Occurred() != nullptr;
  if (c.count() == 1) {
    if (!has_raised) PyErr_SetNone(PyExc_StopIteration);
    return true;
  }
  if (has_raised && !PyErr_ExceptionMatches(PyExc_StopIteration)) return true;
  PyErr_Clear();
  *result = {Py_NewRef(c.argument(1).object), c.argument(1).ref};
  return true;
}

bool call_any_or_all(BuiltinCall& c, Result* result, bool any) {
  if (c.count() != 1) return c.plainly(result);
  const Result iterator = get_iter(&c.trace, c.argument(0));
  if (iterator.object == nullptr) return true;
  Object held = Object::steal(iterator.object);
  for (;;) {
    const Result item = next(&c.trace, {iterator.object, iterator.ref});
    if (item.object == nullptr) break;
    const int found = truth(&c.trace, {item.object, item.ref});
    Py_DECREF(item.object);
    if (found < 0) return true;
    if ((found == 1) == any) {
      *result = {Py_NewRef(any ? Py_True : Py_False), 0};
      return true;
    }
  }
  if (!PyErr_Occurred()) *result = {Py_NewRef(any ? Py_False : Py_True), 0};
  return true;
}

bool call_any(BuiltinCall& c, Result* result) { return call_any_or_all(c, result, true); }
bool call_all(BuiltinCall& c, Result* result) { return call_any_or_all(c, result, false); }

bool call_callable(BuiltinCall& c, Result* result) {
  if (c.count() == 1) c.trace.guard_type(c.argument(0));
  return c.plainly(result);
}

bool call_id(BuiltinCall& c, Result* result) {
  if (c.count() == 1) {
    if (c.trace.is_born(c.argument(0).object)) return false;
    c.trace.guard_same(c.argument(0));
  }
  return c.plainly(result);
}

bool call_hash(BuiltinCall& c, Result* result) {
  if (c.count() != 1) return c.plainly(result);
  const Value v = c.argument(0);
  if (PyObject* method = python_method(v.object, names().hash);
      method && !is_own_of_tensor(c.trace, v, names().hash)) {
    const Result hash = c.call_special(method, names().hash, v);
    if (hash.object == nullptr) return true;
    const Object held = Object::steal(hash.object);
    c.trace.use({hash.object, hash.ref});
    if (!PyLong_Check(hash.object)) {
      PyErr_SetString(PyExc_TypeError, "__hash__ method should return an integer");
      return true;
    }
    Py_ssize_t number = PyLong_AsSsize_t(hash.object);
    if (number == -1 && PyErr_Occurred()) {
      PyErr_Clear();
      number = PyLong_Type.tp_hash(hash.object);
    }
    *result = {PyLong_FromSsize_t(number == -1 ? -2 : number), 0};
    return true;
  }
  if (is_constant(v.object)) {
    c.trace.use(v);
  } else {
    if (c.trace.is_born(v.object)) return false;
    c.trace.guard_same(v);
  }
  return c.plainly(result);
}

// -- types

bool call_type_of(BuiltinCall& c, Result* result) {
  if (c.count() != 1) return false;
  c.trace.guard_type(c.argument(0));
  return c.plainly(result);
}

// bool(x): a constant's is one, all others are asked as a branch asks them.
bool call_bool(BuiltinCall& c, Result* result) {
  if (c.count() == 1 && !c.has_keywords()) {
    const Value number = c.argument(0);
    if (PyBool_Check(number.object)) {
      *result = {Py_NewRef(number.object), number.ref};
      return true;
    }
    if (PyLong_CheckExact(number.object) || PyFloat_CheckExact(number.object)) {
      result->object = PyBool_FromLong(PyObject_IsTrue(number.object));
      result->ref = c.trace.scalar(ScalarOp::is_true, 0, number, {}, result->object);
      return true;
    }
  }
  if (c.count() != 1 || c.has_keywords() || is_constant(c.argument(0).object))
    return c.on_constants(result);
  const int found = truth(&c.trace, c.argument(0));
  if (found >= 0) result->object = PyBool_FromLong(found);
  return true;
}

bool make_list(BuiltinCall& c, Result* result) { return c.build(result, &build_list); }
bool make_tuple(BuiltinCall& c, Result* result) {
  if (c.count() == 1 && !c.has_keywords() && PyTuple_CheckExact(c.argument(0).object)) {
    *result = {Py_NewRef(c.argument(0).object), c.argument(0).ref};
    return true;
  }
  return c.build(result, &build_tuple);
}
bool make_set(BuiltinCall& c, Result* result) { return c.build(result, &build_set); }

bool make_dict(BuiltinCall& c, Result* result) {
  const size_t positional = c.positional();
  if (positional > 1) return c.plainly(result);  // raises
  *result = build_map(&c.trace, {});
  const Value dict{result->object, result->ref};
  bool ok = true;
  if (positional == 1) {
    ok = c.update_from_mapping(dict, c.argument(0));
  }
  for (size_t i = positional; ok && i < c.count(); ++i)
    ok = set_item(&c.trace, dict, {c.keyword(i - positional), 0}, c.argument(i));
  if (!ok) Py_CLEAR(result->object);
  return true;
}

// enumerate, reversed, itertools: C code goes over what is known, or is followed
// when asked.
bool make_iterator_over_known(BuiltinCall& c, Result* result) {
  const bool is_simple = c.callee.object == reinterpret_cast<PyObject*>(&PyEnum_Type) ||
                         c.callee.object == reinterpret_cast<PyObject*>(&PyReversed_Type);
  if (is_simple && make_iterator_over_numbers(c, result)) return true;
  const std::string_view name = reinterpret_cast<PyTypeObject*>(c.callee.object)->tp_name;
  for (size_t i = 0; i < c.count(); ++i) {
    const Value v = c.argument(i);
    const bool is_function =
        PyFunction_Check(v.object) || PyMethod_Check(v.object) || PyCFunction_Check(v.object);
    if (is_function) {
      if (!c.use_function(v)) return false;
    } else if (name == "itertools.repeat" && i == 0 && c.trace.is_tracked(v.object)) {
      c.trace.hold(v.object);
    } else if (!c.touch(v)) {
      return false;
    }
  }
  {
    const Transparent transparent(&c.trace);
    result->object = call_plainly(c.callee.object, c.arguments, c.keywords);
  }
  if (result->object == nullptr) return true;
  if (!c.trace.is_tracked(result->object)) c.trace.transient(result->object);
  result->ref = c.trace.ref_of(result->object);
  return true;
}

// Iterators in C over things that are known: what they give is known.
bool make_iterator(BuiltinCall& c, Result* result) {
  std::vector<Object> held;
  std::vector<Value> inner;
  const bool first_is_function = c.callee.object == reinterpret_cast<PyObject*>(&PyMap_Type) ||
                                 c.callee.object == reinterpret_cast<PyObject*>(&PyFilter_Type);
  for (size_t i = c.positional(); i < c.count(); ++i) {  // zip(strict=True)
    if (!is_constant(c.argument(i).object)) return false;
    c.trace.use(c.argument(i));
  }
  for (size_t i = 0; i < c.positional(); ++i) {
    if (i == 0 && first_is_function) {
      if (c.argument(0).ref == 0 && !is_constant(c.argument(0).object)) return false;
      c.trace.hold(c.argument(0).object);
      if (!may_call_back(c.trace, c.argument(0)) && !c.trace.is_born(c.argument(0).object))
        c.trace.use(c.argument(0));
      inner.push_back(c.argument(0));
      continue;
    }
    const Result iterator = get_iter(&c.trace, c.argument(i));
    if (iterator.object == nullptr) return true;
    held.push_back(Object::steal(iterator.object));
    inner.push_back({iterator.object, iterator.ref});
  }
  for (size_t i = c.positional(); i < c.count(); ++i) inner.push_back(c.argument(i));
  result->object = call_plainly(c.callee.object, inner, c.keywords);
  if (result->object == nullptr) return true;
  c.trace.transient(result->object);
  result->ref = c.trace.ref_of(result->object);
  return true;
}

// Without arguments it takes the class out of a cell of the frame that calls: methods of classes
// that one function has made have one code.
bool use_class_of_frame(Trace& trace) {
  static PyObject* const name = PyUnicode_InternFromString("__class__");
  const Tracing* tracing = active_tracing();
  if (tracing == nullptr || tracing->frames.empty()) return false;
  const Frame frame = tracing->frames.back();
  const PyCodeObject* code = frame.code();
  for (int i = frame.locals() - code->co_nfreevars; i < frame.locals(); ++i) {
    if (PyTuple_GET_ITEM(code->co_localsplusnames, i) != name) continue;
    PyObject* cell = frame.slots()[i];
    if (cell == nullptr || !PyCell_Check(cell) || trace.ref_of(cell) == 0) return false;
    PyObject* type = PyCell_GET(cell);
    trace.use({type, trace.read_cell(trace.value(cell), type)});
    return true;
  }
  return false;
}

bool make_super(BuiltinCall& c, Result* result) {
  if (c.count() > 0)
    c.trace.use(c.argument(0));
  else if (!use_class_of_frame(c.trace))
    c.trace.stop(BreakReason::c_function, "super");
  result->object = call_plainly(c.callee.object, c.arguments, c.keywords);
  if (result->object == nullptr) return true;
  Object type = Object::steal(PyObject_GetAttrString(result->object, "__thisclass__"));
  Object self = Object::steal(PyObject_GetAttrString(result->object, "__self__"));
  if (!type || !self) {
    PyErr_Clear();
    c.trace.stop(BreakReason::c_function, "super");
    return true;
  }
  const Value inputs[] = {c.callee, {type.get(), 0}, c.trace.value(self.get())};
  result->ref = c.trace.make(StepKind::call, inputs, result->object);
  return true;
}

bool make_object(BuiltinCall& c, Result* result) {
  if (c.count() != 0) return false;
  result->object = call_plainly(c.callee.object, {}, nullptr);
  result->ref = c.trace.make(StepKind::call, std::span(&c.callee, 1), result->object);
  return true;
}

// OrderedDict and defaultdict: made empty, then filled.
bool make_dict_of_collections(BuiltinCall& c, Result* result) {
  const size_t positional = c.positional();
  const bool has_factory =
      reinterpret_cast<PyTypeObject*>(c.callee.object) == known_type(KnownType::defaultdict);
  const size_t leading = has_factory && positional > 0 ? 1 : 0;
  if (positional > leading + 1) return c.plainly(result);  // raises
  std::vector<Value> inputs{c.callee};
  if (leading == 1) {
    const Value factory = c.argument(0);
    if (is_constant(factory.object)) c.trace.use(factory);
    inputs.push_back(factory);
  }
  result->object = call_plainly(c.callee.object, std::span(inputs).subspan(1), nullptr);
  if (result->object == nullptr) return true;
  result->ref = c.trace.make(StepKind::call, inputs, result->object);
  const Value dict{result->object, result->ref};
  bool ok = positional == leading || c.update_from_mapping(dict, c.argument(leading));
  for (size_t i = positional; ok && i < c.count(); ++i)
    ok = set_item(&c.trace, dict, {c.keyword(i - positional), 0}, c.argument(i));
  if (!ok) Py_CLEAR(result->object);
  return true;
}

// deque(items, maxlen): made again by calling the class.
bool make_deque(BuiltinCall& c, Result* result) {
  std::vector<Value> inputs{c.callee};
  inputs.insert(inputs.end(), c.arguments.begin(), c.arguments.end());
  Object list;
  if (c.positional() > 0) {
    std::vector<Result> items;
    if (!unpack(&c.trace, c.argument(0), items)) return true;
    std::vector<Value> values;
    for (const Result& item : items) values.push_back({item.object, item.ref});
    const Result built = build_list(&c.trace, values);
    for (const Result& item : items) Py_DECREF(item.object);
    list = Object::steal(built.object);
    inputs[1] = {built.object, built.ref};
  }
  for (size_t i = 2; i < inputs.size(); ++i) c.trace.use(inputs[i]);
  result->object = call_plainly(c.callee.object, std::span(inputs).subspan(1), c.keywords);
  if (result->object != nullptr)
    result->ref = c.trace.make(StepKind::call, inputs, result->object, 0, c.keywords);
  return true;
}

// types.MappingProxyType(dict), of a dict that is known
bool make_proxy(BuiltinCall& c, Result* result) {
  if (c.count() != 1 || c.has_keywords()) return false;
  PyObject* dict = c.argument(0).object;
  if (!PyDict_CheckExact(dict) && !PyODict_CheckExact(dict)) return false;
  if (!c.trace.is_tracked(dict)) return false;
  result->object = call_plainly(c.callee.object, c.arguments, nullptr);
  if (result->object == nullptr) return true;
  const Value inputs[] = {c.callee, c.argument(0)};
  result->ref = c.trace.make(StepKind::call, inputs, result->object);
  return true;
}

// weakref.ref(object): always the same one, as long as it is there. Objects that are compared by
// code of their own are left alone, since references to them are.
bool make_reference(BuiltinCall& c, Result* result) {
  if (c.count() != 1 || c.has_keywords()) return false;
  const Value object = c.trace.value(c.argument(0).object, c.argument(0).ref);
  if (is_atom(object.object)) {
    c.trace.guard_type(object);
    return c.plainly(result);  // raises
  }
  if (object.ref == 0 || !is_known_by_identity(Py_TYPE(object.object))) return false;
  c.trace.guard_type(object);
  if (is_fixed(object.object)) c.trace.guard_same(object);  // a class: nothing else tells which
  result->object = call_plainly(c.callee.object, c.arguments, nullptr);
  if (result->object == nullptr) return true;
  if (c.trace.is_born(object.object)) {
    const Value inputs[] = {c.callee, object};
    result->ref = c.trace.is_tracked(result->object)
                      ? c.trace.ref_of(result->object)
                      : c.trace.make(StepKind::call, inputs, result->object);
    return true;
  }
  // It is the same object if it is what the reference leads to: a guard on the object itself would
  // keep it alive.
  result->ref = c.trace.object_behind(result->object);
  const Value reference{result->object, result->ref};
  c.trace.guard_same(reference);
  c.trace.read(NodeKind::referent, reference, nullptr, 0, object.object);
  return true;
}

// types.MethodType(function, self)
bool make_method(BuiltinCall& c, Result* result) {
  if (c.count() != 2 || c.has_keywords() || !PyFunction_Check(c.argument(0).object)) return false;
  result->object = call_plainly(c.callee.object, c.arguments, nullptr);
  if (result->object != nullptr)
    result->ref = c.trace.make(StepKind::bound_method, c.arguments, result->object);
  return true;
}

// sys.exc_info() in a handler that is being followed. Outside of one it depends on who calls the
// function: that nothing is being handled there is asked again.
bool call_exc_info(BuiltinCall& c, Result* result) {
  result->object = call_plainly(c.callee.object, c.arguments, c.keywords);
  if (result->object == nullptr) return true;
  PyObject* exception = PyTuple_GET_ITEM(result->object, 1);
  PyObject* traceback = PyTuple_GET_ITEM(result->object, 2);
  if (exception == Py_None && c.count() == 0) {
    c.trace.guard_reading(c.callee.object, as_tuple({}).get(), result->object);
    result->ref = c.trace.adopt(result->object);
    return true;
  }
  if (!c.trace.is_born(exception)) {
    c.trace.stop(BreakReason::c_function, "sys.exc_info");
    return true;
  }
  if (traceback != Py_None && !c.trace.is_tracked(traceback)) c.trace.transient(traceback);
  result->ref = c.trace.adopt(result->object);
  return true;
}

bool make_slice(BuiltinCall& c, Result* result) {
  if (c.count() == 1) {
    const Value parts[] = {{Py_None, 0}, c.argument(0)};
    *result = build_slice(&c.trace, parts);
    return true;
  }
  if (c.count() < 2 || c.count() > 3) return c.plainly(result);
  *result = build_slice(&c.trace, c.arguments);
  return true;
}

bool make_text(BuiltinCall& c, Result* result) {
  static PyObject* name = PyUnicode_InternFromString("__str__");
  return call_text(c, name, result);
}

bool call_repr(BuiltinCall& c, Result* result) {
  static PyObject* name = PyUnicode_InternFromString("__repr__");
  return call_text(c, name, result);
}

const Table& functions_of_builtins() {
  static const Table table{{"len", call_len},
                           {"isinstance", call_isinstance},
                           {"issubclass", call_issubclass},
                           {"getattr", call_getattr},
                           {"hasattr", call_hasattr},
                           {"setattr", call_setattr},
                           {"delattr", call_delattr},
                           {"iter", call_iter},
                           {"vars", call_vars},
                           {"next", call_next},
                           {"any", call_any},
                           {"all", call_all},
                           {"sum", call_sum},
                           {"min", call_min},
                           {"max", call_max},
                           {"callable", call_callable},
                           {"id", call_id},
                           {"hash", call_hash},
                           {"repr", call_repr},
                           {"sorted", call_sorted}};
  return table;
}

// Functions of constants: the same arguments, the same result.
const Names_& pure_builtins() {
  static const Names_ all{"abs", "round", "divmod", "pow",   "ord",   "chr",
                          "bin", "hex",   "oct",    "ascii", "format"};
  return all;
}

// Modules of functions on constants.
const Names_& pure_modules() {
  static const Names_ all{"math",    "cmath",   "_operator",   "operator",
                          "_bisect", "_struct", "unicodedata", "_stat"};
  return all;
}

Handler find_type(PyTypeObject* type) {
  static const std::unordered_map<PyTypeObject*, Handler> table{
      {&PyType_Type, call_type_of},
      {&PyList_Type, make_list},
      {&PyTuple_Type, make_tuple},
      {&PySet_Type, make_set},
      {&PyDict_Type, make_dict},
      {&PyMap_Type, make_iterator},
      {&PyFilter_Type, make_iterator},
      {&PyZip_Type, make_iterator},
      {&PyEnum_Type, make_iterator_over_known},
      {&PyReversed_Type, make_iterator_over_known},
      {&PySuper_Type, make_super},
      {&PyBaseObject_Type, make_object},
      {&PySlice_Type, make_slice},
      {&PyMethod_Type, make_method},
      {&PyDictProxy_Type, make_proxy},
      {&_PyWeakref_RefType, make_reference},
      {&PyUnicode_Type, make_text},
      {&PyBool_Type, call_bool},
  };
  const auto found = table.find(type);
  if (found != table.end()) return found->second;
  const std::string_view name = type->tp_name;
  if (name == "collections.OrderedDict" || name == "collections.defaultdict")
    return make_dict_of_collections;
  if (name == "collections.deque") return make_deque;
  if (name.starts_with("itertools.")) return make_iterator_over_known;
  if (name == "functools.partial") return make_partial;
  if (is_getter_type(type)) return make_getter;
  return nullptr;
}

// np.sqrt, np.prod: in C, or Python code behind C's.
bool is_numpy_function(PyObject* callee) {
  const std::string_view type = Py_TYPE(callee)->tp_name;
  return type == "numpy.ufunc" || type == "numpy._ArrayFunctionDispatcher";
}

// Text might be the name of a file.
bool is_numeric(PyObject* object, int depth = 0) {
  if (PyUnicode_Check(object) || PyBytes_Check(object) || depth > 4) return false;
  if (!PyList_CheckExact(object) && !PyTuple_CheckExact(object)) return is_constant(object);
  for (Py_ssize_t i = 0; i < Py_SIZE(object); ++i) {
    PyObject* item =
        PyList_CheckExact(object) ? PyList_GET_ITEM(object, i) : PyTuple_GET_ITEM(object, i);
    if (!is_numeric(item, depth + 1)) return false;
  }
  return true;
}

// On numbers, and tuples and lists of such, it depends on nothing else; an array that it makes is
// no constant.
bool call_numpy(BuiltinCall& c, Result* result) {
  for (const Value& v : c.arguments)
    if (!is_numeric(v.object)) return false;
  c.trace.guard_same(c.callee);
  return c.by_library(result);
}

// Functions without arguments that tell how the interpreter or the process is set up: asked again
// by each cached call.
bool reads_state_of_process(std::string_view module, std::string_view name) {
  static const std::unordered_map<std::string_view, Names_> all{
      {"sys",
       {"getrecursionlimit", "getswitchinterval", "getdefaultencoding", "getfilesystemencoding",
        "getfilesystemencodeerrors", "get_int_max_str_digits"}},
      {"_thread", {"get_ident", "get_native_id"}},
      {"posix", {"getpid", "getppid", "getcwd", "cpu_count"}},
      {"gc", {"get_threshold", "get_debug"}}};  // not isenabled: a trace pauses the collector
  const auto found = all.find(module);
  return found != all.end() && found->second.contains(name);
}

bool read_state_of_process(BuiltinCall& c, Result* result) {
  if (c.count() != 0) return c.plainly(result);  // raises
  const Object value = c.trace.read_state(c.callee.object, as_tuple({}).get());
  if (!value) return false;
  *result = {Py_NewRef(value.get()), c.trace.adopt(value.get(), 2)};
  return true;
}

// str.maketrans
bool is_static_of_text(PyObject* function) {
  const auto* own = reinterpret_cast<PyCFunctionObject*>(function);
  return (own->m_ml->ml_flags & METH_STATIC) != 0 &&
         (own->m_self == reinterpret_cast<PyObject*>(&PyUnicode_Type) ||
          own->m_self == reinterpret_cast<PyObject*>(&PyBytes_Type));
}

// itertools.tee(x, n): n iterators that share what x gives.
bool make_tees(BuiltinCall& c, Result* result) {
  if (c.count() == 0 || c.count() > 2 || c.has_keywords() || PyIter_Check(c.argument(0).object) ||
      !c.touch(c.argument(0)))
    return false;
  if (c.count() == 2) c.trace.use(c.argument(1));
  result->object = call_plainly(c.callee.object, c.arguments, nullptr);
  if (result->object == nullptr) return true;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(result->object); ++i)
    c.trace.transient(PyTuple_GET_ITEM(result->object, i));
  result->ref = c.trace.adopt(result->object);
  return true;
}

// Types whose objects are constants, made of constants.
bool makes_constants(PyTypeObject* type) {
  static const std::unordered_set<PyTypeObject*> table{&PyLong_Type,      &PyFloat_Type,
                                                       &PyBytes_Type,     &PyComplex_Type,
                                                       &PyFrozenSet_Type, &PyRange_Type};
  const std::string_view name = type->tp_name;
  return table.contains(type) || is_numpy_number(type) || name == "torch.device" ||
         name == "torch.Size" || name == "torch.finfo" || name == "torch.iinfo";
}

bool is_enumeration(PyTypeObject* type) {
  return is_exactly(reinterpret_cast<PyObject*>(type), KnownType::enum_meta);
}

}  // namespace

bool call_builtin(Trace* trace, Value callee, std::span<const Value> arguments, PyObject* keywords,
                  Result* result) {
  *result = {};
  BuiltinCall c{*trace, callee, arguments, keywords};
  PyObject* object = callee.object;
  if (PyType_Check(object)) {
    auto* type = reinterpret_cast<PyTypeObject*>(object);
    if (type == &PyLong_Type || type == &PyFloat_Type)
      return convert_object(c, result) || call_on_numbers(c, result);
    if (type == known_type(KnownType::size) && make_size(c, result)) return true;
    if (makes_constants(type)) {
      const FixingSizes loop(*trace, type == &PyRange_Type ? kUnrolled : nullptr);
      return c.on_constants(result);
    }
    if (is_enumeration(type)) return c.by_library(result);
    if (Handler handler = find_type(type)) {
      trace->guard_same(callee);
      return handler(c, result);
    }
    return false;
  }
  if (PyCFunction_Check(object)) {
    PyObject* self = PyCFunction_GET_SELF(object);
    if (self != nullptr && !PyModule_Check(self))
      return call_size_method(c, result) || call_builtin_method(c, result);
    const std::string_view name = reinterpret_cast<PyCFunctionObject*>(object)->m_ml->ml_name;
    if (is_static_of_text(object)) return c.on_constants(result);
    const char* module = self == nullptr ? nullptr : PyModule_GetName(self);
    if (module == nullptr) {
      PyErr_Clear();
      return false;
    }
    trace->guard_same(callee);
    if (std::string_view(module) == "builtins") {
      const auto found = functions_of_builtins().find(name);
      if (found != functions_of_builtins().end()) {
        const bool takes_keywords =
            name == "sum" || name == "min" || name == "max" || name == "sorted";
        if (c.has_keywords() && !takes_keywords) return c.plainly(result);  // raises
        return found->second(c, result);
      }
      if (call_on_operands(c, name, result)) return true;
      if (name == "divmod" && call_divmod(c, result)) return true;
      if (name == "abs" || name == "round" || name == "pow") return call_on_numbers(c, result);
      if (pure_builtins().contains(name)) return c.on_constants(result);
      if (name == "print" || name == "input" || name == "open") {
        trace->stop(BreakReason::output, std::string(name));
        return false;
      }
      return false;
    }
    if (name == "open" && (std::string_view(module) == "_io" || std::string_view(module) == "io")) {
      trace->stop(BreakReason::output, std::string(name));
      return false;
    }
    if (std::string_view(module) == "_operator" || std::string_view(module) == "operator")
      return call_operator_function(c, name, result);
    if (std::string_view(module) == "math")
      return (name == "prod" && call_prod(c, result)) ||
             (name != "pow" && call_on_operands(c, name, result)) || call_on_numbers(c, result);
    if (std::string_view(module) == "_abc") return call_abstract_check(c, name, result);
    if (std::string_view(module) == "_bisect") return call_bisect(c, name, result);
    if (std::string_view(module) == "_heapq") return change_list(c, result);
    if (pure_modules().contains(module)) return c.on_constants(result);
    if ((std::string_view(module) == "posix" && name == "fspath") ||
        (std::string_view(module) == "sys" && name == "intern"))
      return c.on_constants(result);
    if (std::string_view(module) == "sys" && name == "exc_info") return call_exc_info(c, result);
    if (std::string_view(module) == "_functools" && name == "reduce") return call_reduce(c, result);
    if (std::string_view(module) == "itertools" && name == "tee") return make_tees(c, result);
    if (std::string_view(module) == "_warnings") return call_warnings(c, name, result);
    if (reads_state_of_process(module, name)) return read_state_of_process(c, result);
    if (std::string_view(module) == "_collections" && name == "_count_elements")
      return count_elements(c, result);
    return false;
  }
  if (Py_TYPE(object) == &PyMethodDescr_Type || Py_TYPE(object) == &PyWrapperDescr_Type ||
      Py_TYPE(object) == method_wrapper_type())
    return call_size_method(c, result) || call_builtin_method(c, result);
  if (is_numpy_function(object)) return call_numpy(c, result);
  if (is_getter_type(Py_TYPE(object))) return call_getter(c, result);
  return call_cached_function(c, result);
}

}  // namespace smelt::bytecode
