// clang-format off
// What differs between the versions, as found by trying it out:
//
//                        3.11                        3.12                        3.13
//   next unit k          prev_instr = code + k - 1   the same                    instr_ptr = code + k
//   raise at unit k      prev_instr = code + k       the same                    instr_ptr = code + k + 1
//   current frame        tstate->cframe              the same                    tstate->current_frame
//   who clears a frame   the eval function's caller  the eval function           the eval function
//   recursion            one counter                 one for C, one for Python   as in 3.12
// clang-format on
//
// From 3.12 on an eval function must not return before the frame is cleared, and what clears it is
// not exported. So the default eval function does it: it is sent to an instruction that returns
// what lies on the stack, or is told to raise.
#define Py_BUILD_CORE_MODULE 1
#include "capture/bytecode/cpython/frame.h"
// The headers' other branch uses C11 atomics, which C++ lacks.
#undef HAVE_STD_ATOMIC
#include <internal/pycore_frame.h>

#include <internal/pycore_code.h>
#if PY_VERSION_HEX >= 0x030C0000
#include <internal/pycore_interp.h>
#endif
#include <opcode.h>

namespace smelt::bytecode {
namespace {

_PyInterpreterFrame*& current_frame(PyThreadState* thread) {
#if PY_VERSION_HEX >= 0x030D0000
  return thread->current_frame;
#else
  return thread->cframe->current_frame;
#endif
}

#if PY_VERSION_HEX >= 0x030C0000
// As CPython's own check, which is not exported. The counter was decremented before.
bool python_recursion_ok(PyThreadState* thread) {
  if (thread->py_recursion_remaining >= 0 || thread->recursion_headroom > 0) return true;
  ++thread->recursion_headroom;
  PyErr_SetString(PyExc_RecursionError, "maximum recursion depth exceeded");
  --thread->recursion_headroom;
  return false;
}

// A unit of the code that returns the top of the stack; -1 if it has none.
int find_return(PyCodeObject* code) {
  PyObject* bytes = PyCode_GetCode(code);  // cached by the code
  if (bytes == nullptr) {
    PyErr_Clear();
    return -1;
  }
  const char* text = PyBytes_AS_STRING(bytes);
  int found = -1;
  for (Py_ssize_t i = PyBytes_GET_SIZE(bytes) - 2; i >= 0 && found < 0; i -= 2)
    if (static_cast<unsigned char>(text[i]) == RETURN_VALUE) found = static_cast<int>(i / 2);
  Py_DECREF(bytes);
  return found;
}

// For code that returns constants only.
_Py_CODEUNIT* lone_return() {
  static _Py_CODEUNIT units[2] = {};
  units[0].op.code = NOP;
  units[1].op.code = RETURN_VALUE;
  return units;
}
#endif

// The frame, or the next further out that is one of Python code and has begun.
std::optional<Frame> first_complete(_PyInterpreterFrame* frame) {
  while (frame != nullptr && _PyFrame_IsIncomplete(frame)) frame = frame->previous;
  return frame == nullptr ? std::nullopt : std::optional(Frame(frame));
}

void empty_stack(Frame frame) {
  PyObject** slots = frame.slots();
  for (int i = frame.locals() + frame.depth() - 1; i >= frame.locals(); --i) {
    frame.set_depth(i - frame.locals());
    Py_CLEAR(slots[i]);
  }
}

}  // namespace

PyCodeObject* Frame::code() const {
#if PY_VERSION_HEX >= 0x030D0000
  return reinterpret_cast<PyCodeObject*>(frame_->f_executable);
#else
  return frame_->f_code;
#endif
}

PyFunctionObject* Frame::function() const {
#if PY_VERSION_HEX >= 0x030C0000
  return reinterpret_cast<PyFunctionObject*>(frame_->f_funcobj);
#else
  return frame_->f_func;
#endif
}

PyObject* Frame::globals() const { return frame_->f_globals; }
PyObject* Frame::builtins() const { return frame_->f_builtins; }
PyObject* Frame::names() const { return frame_->f_locals; }

PyObject** Frame::slots() const { return frame_->localsplus; }
int Frame::locals() const { return code()->co_nlocalsplus; }
int Frame::depth() const { return frame_->stacktop - locals(); }
void Frame::set_depth(int depth) { frame_->stacktop = locals() + depth; }
void Frame::hide_stack() { frame_->stacktop = -1; }

#if PY_VERSION_HEX >= 0x030D0000
int Frame::next_offset() const {
  return static_cast<int>(frame_->instr_ptr - _PyCode_CODE(code()));
}
void Frame::set_next_offset(int unit) { frame_->instr_ptr = _PyCode_CODE(code()) + unit; }
void Frame::set_running(int unit) { frame_->instr_ptr = _PyCode_CODE(code()) + unit; }
#else
int Frame::next_offset() const {
  return static_cast<int>(frame_->prev_instr + 1 - _PyCode_CODE(code()));
}
void Frame::set_next_offset(int unit) { frame_->prev_instr = _PyCode_CODE(code()) + unit - 1; }
void Frame::set_running(int unit) { frame_->prev_instr = _PyCode_CODE(code()) + unit; }
#endif

int Frame::first_visible() const { return code()->_co_firsttraceable; }

bool Frame::is_generator() const { return frame_->owner == FRAME_OWNED_BY_GENERATOR; }

PyObject* Frame::generator() const {
  return reinterpret_cast<PyObject*>(_PyFrame_GetGenerator(frame_));
}

int Frame::line() const {
  return PyCode_Addr2Line(
      code(), _PyInterpreterFrame_LASTI(frame_) * static_cast<int>(sizeof(_Py_CODEUNIT)));
}

std::optional<Frame> Frame::caller() const { return first_complete(frame_->previous); }

bool Frame::is_held() const {
  return frame_->frame_obj != nullptr &&
         Py_REFCNT(reinterpret_cast<PyObject*>(frame_->frame_obj)) > 1;
}

std::optional<Frame> running_frame(PyThreadState* thread) {
  return first_complete(current_frame(thread));
}

const _PyInterpreterFrame* caller_of_new_frame(PyThreadState* thread) {
  return current_frame(thread);
}

std::optional<Frame> suspended_frame(PyObject* generator) {
  auto* object = reinterpret_cast<PyGenObject*>(generator);
  if (object->gi_frame_state <= FRAME_CREATED || object->gi_frame_state >= FRAME_EXECUTING)
    return std::nullopt;
  return Frame(reinterpret_cast<_PyInterpreterFrame*>(object->gi_iframe));
}

FrameLink::FrameLink(PyThreadState* thread, Frame frame)
    : thread_(thread), previous_(current_frame(thread)) {
  frame.raw()->previous = previous_;
  current_frame(thread) = frame.raw();
  // A failed Py_EnterRecursiveCall leaves its counter as it was.
#if PY_VERSION_HEX >= 0x030C0000
  --thread->py_recursion_remaining;
  ok_ = python_recursion_ok(thread) && Py_EnterRecursiveCall("") == 0;
  if (!ok_) ++thread->py_recursion_remaining;
#else
  frame.raw()->is_entry = true;
  ok_ = Py_EnterRecursiveCall("") == 0;
#endif
}

FrameLink::~FrameLink() {
  if (ok_) {
    Py_LeaveRecursiveCall();
#if PY_VERSION_HEX >= 0x030C0000
    ++thread_->py_recursion_remaining;
#endif
  }
  current_frame(thread_) = previous_;
}

PyObject* run_in_cpython(PyThreadState* thread, Frame frame, bool raised) {
#if PY_VERSION_HEX >= 0x030D0000
  if (raised) ++frame.raw()->instr_ptr;
#endif
  return _PyEval_EvalFrameDefault(thread, frame.raw(), raised ? 1 : 0);
}

PyObject* leave(PyThreadState* thread, Frame frame, PyObject* value) {
  empty_stack(frame);
#if PY_VERSION_HEX >= 0x030C0000
  if (value == nullptr) {
    // Before the first unit there are no handlers, and no traceback is added.
    frame.set_running(-1);
    return run_in_cpython(thread, frame, true);
  }
  frame.slots()[frame.locals()] = value;
  frame.set_depth(1);
  const int unit = find_return(frame.code());
  if (unit >= 0) {
    frame.set_next_offset(unit);
  } else {
#if PY_VERSION_HEX >= 0x030D0000
    frame.raw()->instr_ptr = lone_return() + 1;
#else
    frame.raw()->prev_instr = lone_return();
#endif
  }
  return _PyEval_EvalFrameDefault(thread, frame.raw(), 0);
#else
  (void)thread;
  return value;
#endif
}

bool is_traced(PyThreadState* thread) {
#if PY_VERSION_HEX >= 0x030C0000
  if (thread->c_tracefunc != nullptr || thread->c_profilefunc != nullptr) return true;
  for (const uint8_t tools : thread->interp->monitors.tools)
    if (tools != 0) return true;
  return false;
#else
  return thread->cframe->use_tracing != 0;
#endif
}

EvalFunction current_eval(PyThreadState* thread) {
  return _PyInterpreterState_GetEvalFrameFunc(thread->interp);
}

void set_eval(PyThreadState* thread, EvalFunction eval) {
  _PyInterpreterState_SetEvalFrameFunc(thread->interp, eval);
}

}  // namespace smelt::bytecode
