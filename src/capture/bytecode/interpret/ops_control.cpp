// Jumps, loops, and the ways out of a frame.
#include <opcode.h>

#include <algorithm>

#include "capture/bytecode/interpret/follow.h"
#include "capture/bytecode/interpret/instruction_handlers.h"

namespace smelt::bytecode {

InstructionHandlers::Flow InstructionHandlers::copy(int from_top) {
  const Value value = peek(from_top);
  push(Py_XNewRef(value.object), value.ref);
  return Flow::next;
}

InstructionHandlers::Flow InstructionHandlers::swap(int from_top) {
  const Value top = peek(1), other = peek(from_top);
  set(locals_ + depth_ - 1, other.object, other.ref);
  set(locals_ + depth_ - from_top, top.object, top.ref);
  return Flow::next;
}

// -- jumps

// Only here can a loop be interrupted.
InstructionHandlers::Flow InstructionHandlers::jump_backward(int by) {
  next_ -= by;
  ++turns_;
  return PyErr_CheckSignals() < 0 ? Flow::error : Flow::next;
}

// Whether the code there raises an exception and does nothing else that shows.
bool InstructionHandlers::raises_at(int unit) const {
  constexpr int kMost = 64;
  for (const int end = std::min(unit + kMost, units_); unit < end; ++unit) {
    switch (bytes_[2 * unit]) {
      case RAISE_VARARGS: return true;
      case CACHE:
      case EXTENDED_ARG:
      case NOP:
      case PUSH_NULL:
      case LOAD_ASSERTION_ERROR:
      case LOAD_CONST:
      case LOAD_FAST:
      case LOAD_DEREF:
      case LOAD_GLOBAL:
      case LOAD_ATTR:
      case BINARY_OP:
      case BINARY_SUBSCR:
      case BUILD_STRING:
      case BUILD_TUPLE:
      case CALL:
#if PY_VERSION_HEX < 0x030C0000
      case PRECALL:
      case LOAD_METHOD:
#endif
#ifdef KW_NAMES
      case KW_NAMES:
#endif
#ifdef FORMAT_VALUE
      case FORMAT_VALUE:
#endif
        continue;
      default: return false;
    }
  }
  return false;
}

// Of a branch on a tensor: the truth by which it is passed, if it is a check.
std::optional<bool> InstructionHandlers::passing_truth(bool condition, int by) const {
  if (live() == nullptr || !tensors().is_tensor(peek(1).object)) return std::nullopt;
  const bool raises = raises_at(next_), raises_there = raises_at(next_ + by);
  if (raises == raises_there) return std::nullopt;
  return raises ? condition : !condition;
}

InstructionHandlers::Flow InstructionHandlers::jump_if(bool condition, int by) {
  const int is_true = truth(trace_, peek(1), passing_truth(condition, by));
  if (is_true < 0) return Flow::error;
  drop(1);
  return jump((is_true != 0) == condition ? by : 0);
}

InstructionHandlers::Flow InstructionHandlers::jump_if_or_pop(bool condition, int by) {
  const int is_true = truth(trace_, peek(1));
  if (is_true < 0) return Flow::error;
  if ((is_true != 0) == condition) return jump(by);
  drop(1);
  return Flow::next;
}

InstructionHandlers::Flow InstructionHandlers::jump_if_none(bool condition, int by) {
  const Result same = is_same(trace_, peek(1), {Py_None, 0}, false);
  if (same.object == nullptr) return Flow::error;
  const Object holder = Object::steal(same.object);
  const int is_none = truth(trace_, {same.object, same.ref});
  if (is_none < 0) return Flow::error;
  drop(1);
  return jump((is_none != 0) == condition ? by : 0);
}

// -- loops

InstructionHandlers::Flow InstructionHandlers::get_iterator() {
  return replace(1, get_iter(trace_, peek(1)));
}

InstructionHandlers::Flow InstructionHandlers::for_iter(int by) {
  const Result item = next(trace_, peek(1));
  if (item.object != nullptr) {
    push(item);
    return Flow::next;
  }
  if (PyErr_Occurred() != nullptr) {
    if (!PyErr_ExceptionMatches(PyExc_StopIteration)) return Flow::error;
    PyErr_Clear();
  }
  drop(1);
  return jump(by);
}

// -- generators

InstructionHandlers::Flow InstructionHandlers::get_yield_from_iterator() {
  PyObject* iterable = peek(1).object;
  if (PyCoro_CheckExact(iterable)) {
    if (code_->co_flags & (CO_COROUTINE | CO_ITERABLE_COROUTINE)) return Flow::next;
    PyErr_SetString(PyExc_TypeError,
                    "cannot 'yield from' a coroutine object in a non-coroutine generator");
    return Flow::error;
  }
  return PyGen_CheckExact(iterable) ? Flow::next : get_iterator();
}

// An iterator that could end with a value of its own is asked as CPython does it, and not followed.
static PySendResult send_plainly(Trace* trace, Value receiver, Value sent, Result* result) {
  const bool is_builtin = (Py_TYPE(receiver.object)->tp_flags & Py_TPFLAGS_HEAPTYPE) == 0 &&
                          !PyGen_CheckExact(receiver.object) && !PyCoro_CheckExact(receiver.object);
  if (is_builtin && sent.object == Py_None && PyIter_Check(receiver.object)) {
    *result = next(trace, receiver);
    if (result->object != nullptr) return PYGEN_NEXT;
    if (PyErr_Occurred() != nullptr) return PYGEN_ERROR;
    result->object = Py_NewRef(Py_None);
    return PYGEN_RETURN;
  }
  if (trace != nullptr)
    trace->stop(BreakReason::generator,
                std::string("delegation to a ") + Py_TYPE(receiver.object)->tp_name);
  return PyIter_Send(receiver.object, sent.object, &result->object);
}

// `keep_receiver`: from 3.12 on it stays on the stack at the end, for END_SEND.
InstructionHandlers::Flow InstructionHandlers::send(int by, bool keep_receiver) {
  const Value receiver = peek(2), sent = peek(1);
  Result result;
  PySendResult status = PYGEN_ERROR;
  if (live() == nullptr || !send_to_generator(*live(), receiver.object, sent, &status, &result))
    status = send_plainly(live(), receiver, sent, &result);
  if (status == PYGEN_ERROR) return Flow::error;
  drop(status == PYGEN_RETURN && !keep_receiver ? 2 : 1);
  push(result);
  return jump(status == PYGEN_RETURN ? by : 0);
}

InstructionHandlers::Flow InstructionHandlers::end_send() {
  const Ref ref = peek(1).ref;
  PyObject* value = pop();
  drop(1);
  push(value, ref);
  return Flow::next;
}

InstructionHandlers::Flow InstructionHandlers::return_value() {
  value_ref_ = peek(1).ref;
  value_ = pop();
  return Flow::returned;
}

// CPython suspends the frame: it is sent to this instruction, with the value still on the stack.
InstructionHandlers::Flow InstructionHandlers::yield_value() {
  value_ref_ = peek(1).ref;
  return Flow::yielded;
}

InstructionHandlers::Flow InstructionHandlers::unsupported(const char* instruction) {
  stop(BreakReason::opcode, instruction);
  return Flow::redo;
}

}  // namespace smelt::bytecode
