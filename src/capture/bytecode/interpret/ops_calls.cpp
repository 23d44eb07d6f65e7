// Calls, functions made, and with statements.
#include "capture/bytecode/cpython/names.h"
#include "capture/bytecode/interpret/instruction_handlers.h"
#include "capture/bytecode/trace/boundary.h"

namespace smelt::bytecode {
namespace {

bool all_strings(PyObject* dict) {
  PyObject *key, *item;
  Py_ssize_t at = 0;
  while (PyDict_Next(dict, &at, &key, &item))
    if (!PyUnicode_CheckExact(key)) return false;
  return true;
}

// f(*items) with items that are no sequence.
bool check_iterable(PyObject* callee, PyObject* items) {
  if (Py_TYPE(items)->tp_iter != nullptr || PySequence_Check(items)) return true;
  const Object name = Object::steal(_PyObject_FunctionStr(callee));
  if (name)
    PyErr_Format(PyExc_TypeError, "%U argument after * must be an iterable, not %.200s", name.get(),
                 Py_TYPE(items)->tp_name);
  return false;
}

// The error of f(**other), which is set, in the words of CPython's format_kwargs_error().
void say_what_keywords_lack(PyObject* callee, PyObject* other) {
  const bool is_no_mapping = PyErr_ExceptionMatches(PyExc_AttributeError) != 0;
  if (!is_no_mapping && !PyErr_ExceptionMatches(PyExc_KeyError)) return;
  PyObject *type, *error, *traceback;
  PyErr_Fetch(&type, &error, &traceback);
  // Before 3.12 what is raised while another exception is handled is an object already, and left.
  PyObject* arguments = error != nullptr && PyTuple_Check(error) ? error : nullptr;
#if PY_VERSION_HEX >= 0x030C0000
  if (!is_no_mapping) arguments = reinterpret_cast<PyBaseExceptionObject*>(error)->args;
#endif
  const bool has_key = arguments != nullptr && PyTuple_GET_SIZE(arguments) == 1;
  const Object name =
      is_no_mapping || has_key ? Object::steal(_PyObject_FunctionStr(callee)) : Object();
  if (!name) {
    PyErr_Restore(type, error, traceback);
    return;
  }
  const Object held[] = {Object::steal(type), Object::steal(error), Object::steal(traceback)};
  PyObject* key = is_no_mapping ? nullptr : PyTuple_GET_ITEM(arguments, 0);
  if (is_no_mapping)
    PyErr_Format(PyExc_TypeError, "%U argument after ** must be a mapping, not %.200s", name.get(),
                 Py_TYPE(other)->tp_name);
  else if (PyUnicode_Check(key))
    PyErr_Format(PyExc_TypeError, "%U got multiple values for keyword argument '%S'", name.get(),
                 key);
  else
    PyErr_Format(PyExc_TypeError, "%U keywords must be strings", name.get());
}

Result call_unpacked_plainly(PyObject* callee, PyObject* positional, PyObject* keywords) {
  const Object tuple = PyTuple_CheckExact(positional) ? Object::share(positional)
                                                      : Object::steal(PySequence_Tuple(positional));
  if (!tuple) return {};
  note_act();
  return {PyObject_Call(callee, tuple.get(), keywords), 0};
}

}  // namespace

// The callee, for the error message, lies below the dict and the positional arguments.
InstructionHandlers::Flow InstructionHandlers::merge_keywords(int distance) {
  const bool ok = dict_merge(trace_, peek(distance + 1), peek(1));
  if (!ok) say_what_keywords_lack(peek(distance + 3).object, peek(1).object);
  return done(1, ok);
}

// On the stack: either the callee and its first argument, or nothing and the callee; then the
// arguments.
InstructionHandlers::Flow InstructionHandlers::call_op(int count) {
  const Value method = peek(count + 2);
  const bool has_self = method.object != nullptr;
  const Value callee = has_self ? method : peek(count + 1);
  PyObject* keywords = std::exchange(keyword_names_, nullptr);
  return replace(count + 2,
                 call(trace_, callee, top_values(has_self ? count + 1 : count), keywords));
}

InstructionHandlers::Flow InstructionHandlers::call_with_unpacking(bool has_keywords) {
  const Value keywords = has_keywords ? peek(1) : Value{};
  const Value positional = peek(has_keywords ? 2 : 1);
  const int inputs = has_keywords ? 4 : 3;
  const Value callee = peek(inputs - 1);
  if (!PyTuple_CheckExact(positional.object) && !check_iterable(callee.object, positional.object))
    return Flow::error;
  const bool can_follow = live() != nullptr && (!has_keywords || all_strings(keywords.object));
  if (can_follow) return replace(inputs, call_unpacked(callee, {}, positional, keywords));
  stop(BreakReason::c_function, "a function with keywords that are no strings");
  return replace(inputs, call_unpacked_plainly(callee.object, positional.object, keywords.object));
}

Result InstructionHandlers::call_unpacked(Value callee, Value self, Value positional,
                                          Value keywords) {
  std::vector<Result> items;
  std::vector<Object> holders;
  const bool ok = unpack(trace_, positional, items, true);
  std::vector<Value> arguments;
  arguments.reserve(items.size() + 1);
  holders.reserve(items.size());
  if (self.object != nullptr) arguments.push_back(self);
  for (const Result& item : items) {
    holders.push_back(Object::steal(item.object));
    arguments.push_back({item.object, item.ref});
  }
  if (!ok) return {};
  Object keyword_names;
  if (keywords.object != nullptr) trace_->guard_keys(keywords);  // that there are none, too
  if (keywords.object != nullptr && PyDict_GET_SIZE(keywords.object) > 0) {
    const Object list = Object::steal(PyDict_Keys(keywords.object));
    if (list) keyword_names = Object::steal(PyList_AsTuple(list.get()));
    if (!keyword_names) return {};
    PyObject *key, *item;
    Py_ssize_t at = 0;
    while (PyDict_Next(keywords.object, &at, &key, &item)) {
      holders.push_back(Object::share(item));
      arguments.push_back({item, trace_->read_dict(keywords, key, item)});
    }
  }
  return call(trace_, callee, arguments, keyword_names.get());
}

// On the stack, as the flags say: defaults (1), keyword-only defaults (2), annotations (4), closure
// (8); the code.
InstructionHandlers::Flow InstructionHandlers::make_function(int flags) {
  const Value code = peek(1);
  PyObject* object = PyFunction_New(code.object, frame_.globals());
  if (object == nullptr) return Flow::error;
  auto* function = reinterpret_cast<PyFunctionObject*>(object);
  const Ref globals = live() != nullptr ? live()->object_behind(frame_.globals()) : 0;
  std::vector<Value> inputs{code, {frame_.globals(), globals}};
  int below = 1;
  for (int bit = 0; bit < 4; ++bit) below += (flags >> bit) & 1;
  const int used = below;
  PyObject** fields[] = {&function->func_defaults, &function->func_kwdefaults,
                         &function->func_annotations, &function->func_closure};
  for (int bit = 0; bit < 4; ++bit) {
    if (!((flags >> bit) & 1)) continue;
    const Value part = peek(below--);
    Py_XSETREF(*fields[bit], Py_NewRef(part.object));
    inputs.push_back(part);
  }
  inputs.push_back({reinterpret_cast<PyCodeObject*>(code.object)->co_qualname, 0});
  const Ref ref =
      live() != nullptr ? live()->make(StepKind::make_function, inputs, object, flags) : 0;
  return replace(used, {object, ref});
}

// -- with

// What the object's type has under the name, bound to the object; nullptr without an error if there
// is nothing.
bool InstructionHandlers::special_method(Value object, PyObject* key, Result* bound) {
  PyTypeObject* type = Py_TYPE(object.object);
  PyObject* found = _PyType_Lookup(type, key);
  if (found == nullptr) return true;
  if (live() != nullptr && PyFunction_Check(found)) {
    live()->guard_type(object);
    const Value inputs[] = {{found, live()->read_type(type, key, found)}, object};
    bound->object = PyMethod_New(found, object.object);
    if (bound->object != nullptr)
      bound->ref = trace_->make(StepKind::bound_method, inputs, bound->object);
  } else if (live() != nullptr) {
    *bound = get_attribute(trace_, object, key);
  } else {
    const descrgetfunc get = Py_TYPE(found)->tp_descr_get;
    bound->object = get == nullptr ? Py_NewRef(found)
                                   : get(found, object.object, reinterpret_cast<PyObject*>(type));
  }
  return bound->object != nullptr;
}

InstructionHandlers::Flow InstructionHandlers::before_with() {
  const Value manager = peek(1);
  const char* type = Py_TYPE(manager.object)->tp_name;
  Result enter, exit;
  if (!special_method(manager, names().enter, &enter)) return Flow::error;
  const Object enter_holder = Object::steal(enter.object);
  if (enter.object == nullptr) {
    PyErr_Format(PyExc_TypeError, "'%.200s' object does not support the context manager protocol",
                 type);
    return Flow::error;
  }
  if (!special_method(manager, names().exit, &exit)) return Flow::error;
  if (exit.object == nullptr) {
    PyErr_Format(PyExc_TypeError,
                 "'%.200s' object does not support the context manager protocol (missed __exit__ "
                 "method)",
                 type);
    return Flow::error;
  }
  const Result entered = call(trace_, {enter.object, enter.ref}, {}, nullptr);
  replace(1, exit);
  if (entered.object == nullptr) return Flow::error;
  push(entered);
  return Flow::next;
}

// On the stack: __exit__, the unit that raised, the exception that was handled before, the one that
// is now.
InstructionHandlers::Flow InstructionHandlers::with_except_start() {
  const Value exit = peek(4), exception = peek(1);
  const Object traceback = Object::steal(PyException_GetTraceback(exception.object));
  if (live() != nullptr) live()->guard_type(exception);  // its type is an argument
  if (live() != nullptr && traceback && !live()->is_tracked(traceback.get()))
    live()->transient(traceback.get());
  const Ref traceback_ref = live() != nullptr && traceback ? live()->ref_of(traceback.get()) : 0;
  const Value arguments[] = {
      {reinterpret_cast<PyObject*>(Py_TYPE(exception.object)), 0},
      exception,
      {traceback ? traceback.get() : Py_None, traceback_ref},
  };
  const Result result = call(trace_, exit, arguments, nullptr);
  if (result.object == nullptr) return Flow::error;
  push(result);
  return Flow::next;
}

}  // namespace smelt::bytecode
