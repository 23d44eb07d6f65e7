// Raising and handling.
#include "capture/bytecode/cpython/names.h"
#include "capture/bytecode/interpret/instruction_handlers.h"

namespace smelt::bytecode {
namespace {

bool can_be_caught(PyObject* type) {
  if (!PyTuple_Check(type)) return PyExceptionClass_Check(type);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(type); ++i)
    if (!PyExceptionClass_Check(PyTuple_GET_ITEM(type, i))) return false;
  return true;
}

}  // namespace

// -- the exception that is being handled. The context of the innermost generator or thread has it;
// what other
//    contexts handle does not matter here.

InstructionHandlers::Flow InstructionHandlers::push_exc_info() {
  const Value exception = peek(1);
  _PyErr_StackItem* context = thread_->exc_info;
  PyObject* previous = context->exc_value;
  if (previous == nullptr) previous = Py_NewRef(Py_None);
  const Ref ref = live() != nullptr ? live()->ref_of(previous) : 0;
  context->exc_value = Py_NewRef(exception.object);
  set(locals_ + depth_ - 1, previous, ref);
  push(exception.object, exception.ref);
  return Flow::next;
}

InstructionHandlers::Flow InstructionHandlers::pop_except() {
  _PyErr_StackItem* context = thread_->exc_info;
  // The end of a handler in which the trace began is not something that a cached call could repeat.
  if (is_root_ && handled_at_start_ && context->exc_value == handled_at_start_.get() &&
      peek(1).object != handled_at_start_.get())
    stop(BreakReason::handler, "");
  PyObject* old = context->exc_value;
  context->exc_value = pop();
  let_go(old);
  return Flow::next;
}

InstructionHandlers::Flow InstructionHandlers::check_exception_match() {
  const Value exception = peek(2), type = peek(1);
  if (!can_be_caught(type.object)) {
    PyErr_SetString(PyExc_TypeError,
                    "catching classes that do not inherit from BaseException is not allowed");
    return Flow::error;
  }
  if (live() != nullptr) {
    live()->use(type);
    live()->guard_type(exception);
    PyTypeObject* raised = Py_TYPE(exception.object);
    live()->read_type(raised, names().cls, _PyType_Lookup(raised, names().cls));  // and its bases
  }
  const int matches = PyErr_GivenExceptionMatches(exception.object, type.object);
  drop(1);
  push(PyBool_FromLong(matches), 0);
  return Flow::next;
}

// -- raising

// An exception, given itself or by its class; an error with the complaint for anything else.
Result InstructionHandlers::exception_from(Value value, const char* complaint) {
  if (PyExceptionInstance_Check(value.object)) return {Py_NewRef(value.object), value.ref};
  if (!PyExceptionClass_Check(value.object)) {
    PyErr_SetString(PyExc_TypeError, complaint);
    return {};
  }
  return call(trace_, value, {}, nullptr);
}

// raise, raise x, raise x from y
InstructionHandlers::Flow InstructionHandlers::raise(int count) {
  if (count == 0) {
    Object handled = Object::steal(PyErr_GetHandledException());
    if (!handled || handled.get() == Py_None) {
      PyErr_SetString(PyExc_RuntimeError, "No active exception to reraise");
      return Flow::error;
    }
    if (!handler_at(running_)) {
      raised_type_ = Py_TYPE(handled.get())->tp_name;
      return Flow::escape;
    }
    restore_error(std::move(handled));
    return Flow::reraise;
  }
  const Value raised = peek(count);
  const Result exception = exception_from(raised, "exceptions must derive from BaseException");
  if (exception.object == nullptr) return Flow::error;
  const Object holder = Object::steal(exception.object);
  if (!PyExceptionInstance_Check(exception.object)) {
    PyErr_Format(PyExc_TypeError,
                 "calling %R should have returned an instance of BaseException, not %R",
                 raised.object, Py_TYPE(exception.object));
    return Flow::error;
  }
  if (count == 2) {
    Result cause;
    if (peek(1).object != Py_None) {
      cause = exception_from(peek(1), "exception causes must derive from BaseException");
      if (cause.object == nullptr) return Flow::error;
    }
    PyException_SetCause(exception.object, cause.object);
  }
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.object)), exception.object);
  return Flow::error;
}

// Raises what is on the stack again. Below it, at `distance` if that is not 0, lies the unit that
// raised it first.
InstructionHandlers::Flow InstructionHandlers::reraise(int distance) {
  const Value exception = peek(1);
  if (distance != 0) lasti_ = static_cast<int>(PyLong_AsLong(peek(1 + distance).object));
  frame_.set_running(lasti_);
  if (!handler_at(running_)) {
    raised_type_ = Py_TYPE(exception.object)->tp_name;
    return Flow::escape;
  }
  restore_error(Object::steal(pop()));
  return Flow::reraise;
}

// A generator that this one delegates to ended while an exception was thrown into it. On the stack:
// it, what was sent last, the exception.
InstructionHandlers::Flow InstructionHandlers::cleanup_throw() {
  const Value exception = peek(1);
  if (PyErr_GivenExceptionMatches(exception.object, PyExc_StopIteration)) {
    stop(BreakReason::generator, "one that is thrown into");
    PyObject* value = reinterpret_cast<PyStopIterationObject*>(exception.object)->value;
    Py_INCREF(value);
    drop(3);
    push(Py_NewRef(Py_None), 0);
    push(value, 0);
    return Flow::next;
  }
  if (!handler_at(running_)) {
    raised_type_ = Py_TYPE(exception.object)->tp_name;
    return Flow::escape;
  }
  restore_error(Object::share(exception.object));
  return Flow::reraise;
}

// 3.12: a StopIteration must not leave a generator.
InstructionHandlers::Flow InstructionHandlers::stop_iteration_error() {
  PyObject* exception = peek(1).object;
  if (!PyErr_GivenExceptionMatches(exception, PyExc_StopIteration)) return Flow::next;
  const Object message = Object::steal(PyUnicode_FromString("generator raised StopIteration"));
  if (!message) return Flow::error;
  PyObject* error = PyObject_CallOneArg(PyExc_RuntimeError, message.get());
  if (error == nullptr) return Flow::error;
  PyException_SetCause(error, Py_NewRef(exception));
  PyException_SetContext(error, Py_NewRef(exception));
  return replace(1, {error, 0});
}

}  // namespace smelt::bytecode
