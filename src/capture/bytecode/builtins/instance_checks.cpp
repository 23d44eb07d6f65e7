// isinstance and issubclass, as CPython goes about them: what the classes themselves say in Python
// (__instancecheck__, a __class__ of the object's own) is followed, the rest depends on types and
// on the order of their bases, which are guarded.
#include <string_view>

#include "capture/bytecode/builtins/builtin_call.h"
#include "capture/bytecode/cpython/known_types.h"
#include "capture/bytecode/cpython/names.h"

namespace smelt::bytecode {
namespace {

enum class Question : uint8_t { instance, subclass };

constexpr int kDeepest = 20;  // tuples in tuples

PyObject* method_name(Question question) {
  static PyObject* const instance = PyUnicode_InternFromString("__instancecheck__");
  static PyObject* const subclass = PyUnicode_InternFromString("__subclasscheck__");
  return question == Question::instance ? instance : subclass;
}

// The type is what it is, and so are its bases.
void guard_bases(Trace& trace, PyTypeObject* type) {
  trace.read_type(type, names().cls, _PyType_Lookup(type, names().cls));
}

// The class that the object says it has, if that is code of its own; empty: it is type(object).
// False with an error set.
bool read_class(Trace& trace, Value object, Result* cls) {
  static PyObject* const plain = _PyType_Lookup(&PyBaseObject_Type, names().cls);
  PyTypeObject* type = Py_TYPE(object.object);
  if (_PyType_Lookup(type, names().cls) == plain && has_generic_attributes(type)) return true;
  if (PyType_Check(object.object) || PyModule_Check(object.object) || is_atom(object.object) ||
      tensors().is_tensor(object.object))
    return true;
  *cls = get_attribute(&trace, object, names().cls);
  if (cls->object != nullptr) return true;
  if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return false;
  PyErr_Clear();
  return true;
}

// As type.__instancecheck__ and type.__subclasscheck__ do it; -1 with an error set.
int ask_types(Trace& trace, Question question, Value object, PyTypeObject* cls) {
  if (question == Question::subclass) {
    trace.use(object);
    auto* type = reinterpret_cast<PyTypeObject*>(object.object);
    guard_bases(trace, type);
    return PyType_IsSubtype(type, cls);
  }
  if (tensors().is_tensor(object.object))
    trace.use(object);
  else
    trace.guard_type(object);
  guard_bases(trace, Py_TYPE(object.object));
  if (PyObject_TypeCheck(object.object, cls)) return 1;
  Result own;
  if (!read_class(trace, object, &own)) return -1;
  const Object held = Object::steal(own.object);
  if (!held || !PyType_Check(held.get())) return 0;
  trace.use({held.get(), own.ref});
  auto* type = reinterpret_cast<PyTypeObject*>(held.get());
  guard_bases(trace, type);
  return PyType_IsSubtype(type, cls);
}

// _abc._abc_instancecheck(cls, object): a positive answer is kept by the class for good, a negative
// one until a class is registered anywhere. So what it calls in Python is called once.
bool ask_abstract_class(BuiltinCall& c, Question question, Result* result) {
  static PyObject* const token = [] {
    const Object module = Object::steal(PyImport_ImportModule("_abc"));
    return PyObject_GetAttrString(module.get(), "get_cache_token");
  }();
  if (c.count() != 2 || c.has_keywords() || !PyType_Check(c.argument(0).object)) return false;
  const Value object = c.argument(1);
  c.trace.use(c.argument(0));
  if (question == Question::subclass) {
    if (!PyType_Check(object.object)) return false;
    c.trace.use(object);
  } else {
    if (tensors().is_tensor(object.object))
      c.trace.use(object);
    else
      c.trace.guard_type(object);
    Result own;
    if (!read_class(c.trace, object, &own)) return true;
    const Object held = Object::steal(own.object);
    if (held) c.trace.use({held.get(), own.ref});
  }
  {
    const Unfollowed unfollowed(&c.trace, true, Trust::everybody);
    result->object = call_plainly(c.callee.object, c.arguments, nullptr);
  }
  if (result->object == Py_False) c.trace.read_state(token, as_tuple({}).get());
  return true;
}

int ask(Trace& trace, Question question, Value object, Value cls, int depth);

// The classes of `int | str`.
int ask_each(Trace& trace, Question question, Value object, std::span<const Value> classes,
             int depth) {
  for (const Value& one : classes)
    if (const int answer = ask(trace, question, object, one, depth); answer != 0) return answer;
  return 0;
}

int ask_union(Trace& trace, Question question, Value object, Value types, int depth) {
  trace.use(types);
  const Object parts = Object::steal(PyObject_GetAttrString(types.object, "__args__"));
  if (!parts || !PyTuple_Check(parts.get())) return -1;
  trace.hold(parts.get());
  std::vector<Value> classes;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(parts.get()); ++i) {
    PyObject* part = PyTuple_GET_ITEM(parts.get(), i);
    if (!PyType_Check(part)) return -2;
    classes.push_back({part, 0});
  }
  return ask_each(trace, question, object, classes, depth);
}

// -2: it is for CPython to say; nothing has been asked.
int ask(Trace& trace, Question question, Value object, Value cls, int depth) {
  cls = trace.value(cls.object, cls.ref);
  PyTypeObject* meta = Py_TYPE(cls.object);
  if (question == Question::instance &&
      reinterpret_cast<PyObject*>(Py_TYPE(object.object)) == cls.object) {
    trace.use(cls);
    return ask_types(trace, question, object, reinterpret_cast<PyTypeObject*>(cls.object));
  }
  if (PyTuple_Check(cls.object)) {
    if (depth == kDeepest) return -2;
    std::vector<Result> items;
    if (!unpack(&trace, cls, items)) return -1;
    std::vector<Value> classes;
    for (const Result& item : items) classes.push_back({item.object, item.ref});
    const int answer = ask_each(trace, question, object, classes, depth + 1);
    release(items);
    return answer;
  }
  if (meta == known_type(KnownType::union_type))
    return ask_union(trace, question, object, cls, depth);
  PyObject* name = method_name(question);
  static PyObject* const plain_instance =
      _PyType_Lookup(&PyType_Type, method_name(Question::instance));
  static PyObject* const plain_subclass =
      _PyType_Lookup(&PyType_Type, method_name(Question::subclass));
  PyObject* method = _PyType_Lookup(meta, name);
  if (PyType_Check(cls.object) &&
      method == (question == Question::instance ? plain_instance : plain_subclass)) {
    trace.use(cls);
    trace.read_type(meta, name, method);
    if (question == Question::subclass && !PyType_Check(object.object)) return -2;
    return ask_types(trace, question, object, reinterpret_cast<PyTypeObject*>(cls.object));
  }
  if (method == nullptr || !PyFunction_Check(method)) return -2;
  const Value arguments[] = {cls, object};
  trace.use(cls);
  const Result answer =
      call(&trace, {method, trace.read_type(meta, name, method)}, arguments, nullptr);
  if (answer.object == nullptr) return -1;
  const Object held = Object::steal(answer.object);
  return truth(&trace, {answer.object, answer.ref});
}

// A class of PyTorch's with a check in C: torch.FloatTensor asks for dtype and device.
bool is_of_torch(PyObject* cls) {
  const std::string_view meta = Py_TYPE(cls)->tp_name;
  return meta == "torch.tensortype" || meta.starts_with("torch.");
}

bool answer(BuiltinCall& c, Question question, Result* result) {
  if (c.count() != 2) return c.plainly(result);  // raises
  const int found = ask(c.trace, question, c.argument(0), c.argument(1), 0);
  if (found == -2) {
    if (!is_of_torch(c.argument(1).object)) c.trace.guard_type(c.argument(0));
    c.trace.use(c.argument(0));
    c.trace.use(c.argument(1));
    return c.plainly(result);
  }
  if (found >= 0) *result = {PyBool_FromLong(found), 0};
  return true;
}

}  // namespace

bool call_type_check(Trace& trace, Value cls, std::span<const Value> arguments,
                     std::string_view name, Result* result) {
  const bool is_instance = name == "__instancecheck__";
  if ((!is_instance && name != "__subclasscheck__") || arguments.size() != 1 ||
      !PyType_Check(cls.object) || (!is_instance && !PyType_Check(arguments[0].object)))
    return false;
  trace.use(cls);
  const int found = ask_types(trace, is_instance ? Question::instance : Question::subclass,
                              arguments[0], reinterpret_cast<PyTypeObject*>(cls.object));
  if (found >= 0) *result = {PyBool_FromLong(found), 0};
  return true;
}

bool call_isinstance(BuiltinCall& c, Result* result) {
  return answer(c, Question::instance, result);
}

bool call_issubclass(BuiltinCall& c, Result* result) {
  return answer(c, Question::subclass, result);
}

bool call_abstract_check(BuiltinCall& c, std::string_view name, Result* result) {
  if (name == "_abc_instancecheck") return ask_abstract_class(c, Question::instance, result);
  if (name == "_abc_subclasscheck") return ask_abstract_class(c, Question::subclass, result);
  return false;
}

}  // namespace smelt::bytecode
