// match statements.
#include "capture/bytecode/interpret/instruction_handlers.h"

namespace smelt::bytecode {
namespace {

// A builtin function, found once.
PyObject* builtin(const char* name) {
  return Py_XNewRef(PyDict_GetItemString(PyEval_GetBuiltins(), name));
}

std::vector<Value> borrowed(const std::vector<Result>& items) {
  std::vector<Value> values;
  for (const Result& item : items) values.push_back({item.object, item.ref});
  return values;
}

// Adds the element; false with an error set if it has been there before.
bool add_once(PyObject* seen, PyObject* element, PyObject* error, const char* format,
              const char* type) {
  const int known = PySet_Contains(seen, element);
  if (known < 0 || (known == 0 && PySet_Add(seen, element) < 0)) return false;
  if (known == 0) return true;
  if (type != nullptr)
    PyErr_Format(error, format, type, element);
  else
    PyErr_Format(error, format, element);
  return false;
}

}  // namespace

InstructionHandlers::Flow InstructionHandlers::get_length() {
  static PyObject* len = builtin("len");
  const Value subject = peek(1);
  const Result length = call(trace_, {len, 0}, {&subject, 1}, nullptr);
  if (length.object == nullptr) return Flow::error;
  push(length);
  return Flow::next;
}

// Whether the subject's type says that it is a mapping, or a sequence.
InstructionHandlers::Flow InstructionHandlers::match_flag(unsigned long flag) {
  const Value subject = peek(1);
  if (live() != nullptr) live()->guard_type(subject);
  push(PyBool_FromLong((Py_TYPE(subject.object)->tp_flags & flag) != 0), 0);
  return Flow::next;
}

// On the stack: the subject, a tuple of keys. Adds the tuple of their values, or None.
InstructionHandlers::Flow InstructionHandlers::match_keys() {
  const Value subject = peek(2);
  PyObject* keys = peek(1).object;
  if (!PyDict_CheckExact(subject.object)) return unsupported("MATCH_KEYS");
  const Object seen = Object::steal(PySet_New(nullptr));
  if (!seen) return Flow::error;
  std::vector<Result> found;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keys); ++i) {
    const Value key{PyTuple_GET_ITEM(keys, i), 0};
    Result has;
    if (add_once(seen.get(), key.object, PyExc_ValueError,
                 "mapping pattern checks duplicate key (%R)", nullptr))
      has = contains(trace_, subject, key, false);
    const Object has_holder = Object::steal(has.object);
    const int is_there = has.object == nullptr ? -1 : truth(trace_, {has.object, has.ref});
    Result item;
    if (is_there > 0) item = get_item(trace_, subject, key);
    if (item.object != nullptr) {
      found.push_back(item);
      continue;
    }
    release(found);
    if (is_there != 0) return Flow::error;
    push(Py_NewRef(Py_None), 0);
    return Flow::next;
  }
  const Result values = build_tuple(trace_, borrowed(found));
  release(found);
  if (values.object == nullptr) return Flow::error;
  push(values);
  return Flow::next;
}

int InstructionHandlers::is_instance(Value subject, Value type) {
  static PyObject* isinstance = builtin("isinstance");
  const Value arguments[] = {subject, type};
  const Result result = call(trace_, {isinstance, 0}, arguments, nullptr);
  if (result.object == nullptr) return -1;
  const Object holder = Object::steal(result.object);
  return truth(trace_, {result.object, result.ref});
}

// On the stack: the subject, a class, a tuple of attribute names. Replaces them by the tuple of the
// attributes, or None.
InstructionHandlers::Flow InstructionHandlers::match_class(int positional) {
  const Value subject = peek(3), type = peek(2);
  PyObject* keywords = peek(1).object;
  if (!PyType_Check(type.object)) {
    PyErr_SetString(PyExc_TypeError, "called match pattern must be a class");
    return Flow::error;
  }
  const int is_one = is_instance(subject, type);
  if (is_one < 0) return Flow::error;
  bool matched = is_one > 0;
  std::vector<Result> found;
  if (matched && !match_attributes(subject, type, positional, keywords, &matched, found)) {
    release(found);
    return Flow::error;
  }
  Result result{nullptr, 0};
  if (matched)
    result = build_tuple(trace_, borrowed(found));
  else
    result.object = Py_NewRef(Py_None);
  release(found);
  return replace(3, result);
}

// False with an error set.
bool InstructionHandlers::match_attributes(Value subject, Value type, int positional,
                                           PyObject* keywords, bool* matched,
                                           std::vector<Result>& found) {
  static PyObject* match_args = PyUnicode_InternFromString("__match_args__");
  const char* type_name = reinterpret_cast<PyTypeObject*>(type.object)->tp_name;
  const Object seen = Object::steal(PySet_New(nullptr));
  if (!seen) return false;
  if (positional > 0) {
    const Result order = get_attribute(trace_, type, match_args);
    const Object holder = Object::steal(order.object);
    bool is_itself = false;
    if (order.object == nullptr) {
      if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return false;
      PyErr_Clear();
      is_itself = PyType_HasFeature(reinterpret_cast<PyTypeObject*>(type.object),
                                    _Py_TPFLAGS_MATCH_SELF) != 0;
    } else if (!PyTuple_CheckExact(order.object)) {
      PyErr_Format(PyExc_TypeError, "%s.__match_args__ must be a tuple (got %s)", type_name,
                   Py_TYPE(order.object)->tp_name);
      return false;
    } else if (live() != nullptr) {
      live()->use({order.object, order.ref});
    }
    const int named =
        order.object != nullptr ? static_cast<int>(PyTuple_GET_SIZE(order.object)) : 0;
    const int allowed = is_itself ? 1 : named;
    if (allowed < positional) {
      PyErr_Format(PyExc_TypeError, "%s() accepts %d positional sub-pattern%s (%d given)",
                   type_name, allowed, allowed == 1 ? "" : "s", positional);
      return false;
    }
    if (is_itself) found.push_back({Py_NewRef(subject.object), subject.ref});
    for (int i = 0; i < positional && !is_itself; ++i) {
      PyObject* attribute = PyTuple_GET_ITEM(order.object, i);
      if (!PyUnicode_CheckExact(attribute)) {
        PyErr_Format(PyExc_TypeError, "__match_args__ elements must be strings (got %s)",
                     Py_TYPE(attribute)->tp_name);
        return false;
      }
      if (!match_attribute(subject, type, attribute, seen.get(), matched, found)) return false;
      if (!*matched) return true;
    }
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keywords) && *matched; ++i) {
    PyObject* attribute = PyTuple_GET_ITEM(keywords, i);
    if (!match_attribute(subject, type, attribute, seen.get(), matched, found)) return false;
  }
  return true;
}

bool InstructionHandlers::match_attribute(Value subject, Value type, PyObject* attribute,
                                          PyObject* seen, bool* matched,
                                          std::vector<Result>& found) {
  if (!add_once(seen, attribute, PyExc_TypeError, "%s() got multiple sub-patterns for attribute %R",
                reinterpret_cast<PyTypeObject*>(type.object)->tp_name))
    return false;
  const Result result = get_attribute(trace_, subject, attribute);
  if (result.object != nullptr) {
    found.push_back(result);
    return true;
  }
  if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return false;
  PyErr_Clear();
  *matched = false;
  return true;
}

}  // namespace smelt::bytecode
