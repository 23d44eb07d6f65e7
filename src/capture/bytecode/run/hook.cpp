#include "capture/bytecode/run/hook.h"

#include <algorithm>
#include <exception>
#include <string_view>

#include "capture/bytecode/cpython/libraries.h"
#include "capture/bytecode/cpython/names.h"
#include "capture/bytecode/cpython/other_compilers.h"
#include "capture/bytecode/interpret/disabled.h"
#include "capture/bytecode/interpret/follow.h"
#include "capture/bytecode/trace/boundary.h"
#include "diagnostics/log.h"

namespace smelt::bytecode {
namespace {

// A compiled function whose frame CPython is about to make.
struct Entry {
  FrameRunner* runner;
  PyFunctionObject* function;
  Entry* outer;
  bool taken = false;
};

// The frame of a compiled function that is being run.
struct Inside {
  const _PyInterpreterFrame* frame;
  const Inside* outer;
};

// A frame that was handed on to someone else's eval function, which may be on top of the hook
// itself: then it hands the frame, or one that it has made in its place, back to the hook.
struct HandedOn {
  const _PyInterpreterFrame* caller;
  const HandedOn* outer;
};

struct ThreadHook {
  Entry* entry = nullptr;
  const Inside* inside = nullptr;
  const HandedOn* handed_on = nullptr;
  FrameRunner* adopter = nullptr;
  int installs = 0;  // of the hook, by this thread
  int holds = 0;     // of the collector
};

thread_local ThreadHook this_thread;

// The eval function and the collector belong to the whole process; these are guarded by the GIL.
int installs = 0;
EvalFunction previous_eval = nullptr;
int collector_holds = 0;
bool collector_was_on = false;  // before the first of them

PyObject* eval_frame(PyThreadState* thread, _PyInterpreterFrame* raw, int throwing);

void install(PyThreadState* thread, int times = 1) {
  this_thread.installs += times;
  if (times == 0 || (installs += times) > times) return;
  const EvalFunction current = current_eval(thread);
  if (current == eval_frame) return;  // left by someone who had put his own on top of it
  previous_eval = current;
  set_eval(thread, eval_frame);
}

void uninstall(PyThreadState* thread, int times = 1) {
  this_thread.installs -= times;
  if (times == 0 || (installs -= times) > 0) return;
  if (current_eval(thread) == eval_frame) set_eval(thread, previous_eval);
}

void hold_collector(int times = 1) {
  this_thread.holds += times;
  if (times > 0 && (collector_holds += times) == times) collector_was_on = PyGC_Disable() != 0;
}

void release_collector(int times = 1) {
  this_thread.holds -= times;
  if (times > 0 && (collector_holds -= times) == 0 && collector_was_on) PyGC_Enable();
}

PyObject* enter(PyThreadState* thread, Frame frame) {
  Entry* entry = this_thread.entry;
  entry->taken = true;
  this_thread.entry = entry->outer;
  uninstall(thread);
  const Inside inside{frame.raw(), this_thread.inside};
  this_thread.inside = &inside;
  PyObject* result = entry->runner->run_frame(thread, frame);
  this_thread.inside = inside.outer;
  return result;
}

// Code that reads nothing of the user's but by calling it, which is seen. Of the machinery of
// Python: what makes classes of constants and generic types, what signatures and loggers are read
// by (who calls those has guarded what they read), and what finds modules that are not loaded yet.
bool is_of_library(Frame frame) {
  static constexpr std::string_view kModules[] = {
      "torch", "numpy", "smelt", "enum", "inspect", "logging", "importlib", "contextlib", "abc"};
  return std::ranges::any_of(
      kModules, [&](std::string_view one) { return is_of_package(frame.globals(), one); });
}

// How a named tuple is made: by code of Python's that has no names to read.
bool makes_named_tuple(Frame frame) {
  PyObject* name = PyDict_GetItemWithError(frame.globals(), names().name);
  if (name == nullptr || !PyUnicode_Check(name) || !text_of(name).starts_with("namedtuple_"))
    return false;
  static PyObject* const key = PyUnicode_InternFromString("__builtins__");
  PyObject* builtins = PyDict_GetItemWithError(frame.globals(), key);
  return builtins != nullptr && PyDict_CheckExact(builtins) && PyDict_GET_SIZE(builtins) == 0;
}

// C asks it about generic types; typing_extensions puts functions of its own into typing.
bool is_of_typing(Frame frame) {
  static PyObject* const abstract = [] {  // which calls itself collections.abc, as another one does
    const Object name = Object::steal(PyUnicode_FromString("_collections_abc"));
    PyObject* module = PyImport_GetModule(name.get());
    return module == nullptr ? nullptr : PyModule_GetDict(module);
  }();
  if (frame.globals() == abstract) {  // Callable[[int], str]
    const std::string name = text_of(frame.code()->co_qualname);
    return name.starts_with("_CallableGenericAlias.") || name == "_is_param_expr";
  }
  return is_of_package(frame.globals(), "typing") ||
         is_of_package(frame.globals(), "typing_extensions");
}

// By it a dict finds a tensor: by its address, which who looks it up has guarded.
bool is_hash_of_tensor(Frame frame) {
  return is_of_package(frame.globals(), "torch._tensor") &&
         PyUnicode_CompareWithASCIIString(frame.code()->co_name, "__hash__") == 0;
}

// An error may be on its way into the frame.
bool may_run_unseen(const Tracing& tracing, Frame frame) {
  const SavedError error;
  if (is_bookkeeping_of_compiler(reinterpret_cast<PyObject*>(frame.function()))) return true;
  switch (tracing.trust) {
    case Trust::nobody: return is_of_typing(frame) || is_hash_of_tensor(frame);
    case Trust::libraries:
      return is_of_library(frame) || is_of_typing(frame) || makes_named_tuple(frame) ||
             tracing.trace->log().is_in_op();
    case Trust::everybody: return true;
  }
  return false;
}

PyObject* hand_on(PyThreadState* thread, _PyInterpreterFrame* raw, int throwing) {
  const EvalFunction previous = previous_eval;
  if (previous == _PyEval_EvalFrameDefault) return previous(thread, raw, throwing);
  const HandedOn here{caller_of_new_frame(thread), this_thread.handed_on};
  this_thread.handed_on = &here;
  PyObject* result = previous(thread, raw, throwing);
  this_thread.handed_on = here.outer;
  return result;
}

// Whoever was handed a frame hands it back: he has begun no frame, as the caller is still the same.
bool is_handed_back(PyThreadState* thread) {
  return this_thread.handed_on != nullptr &&
         this_thread.handed_on->caller == caller_of_new_frame(thread);
}

// CPython's entry to smelt: throws nothing (boundary.h).
PyObject* eval_frame(PyThreadState* thread, _PyInterpreterFrame* raw, int throwing) {
  if (installs == 0 && current_eval(thread) == eval_frame) set_eval(thread, previous_eval);
  if (is_handed_back(thread)) return _PyEval_EvalFrameDefault(thread, raw, throwing);
  const Frame frame(raw);
  const Entry* entry = this_thread.entry;
  if (entry != nullptr && throwing == 0 && frame.function() == entry->function)
    return enter(thread, frame);
  if (Tracing* tracing = active_tracing()) {
    PyObject* result = nullptr;
    if (follow_frame(*tracing, thread, frame, throwing != 0, &result)) return result;
    if (!may_run_unseen(*tracing, frame))
      keep_account(tracing->trace, [&] {
        tracing->trace->stop(BreakReason::c_callback, text_of(frame.code()->co_qualname));
      });
    if (!is_of_package(frame.globals(), "importlib")) return hand_on(thread, raw, throwing);
    // Whoever finds the module, and its own code, are no part of the program.
    const Trust outer = std::exchange(tracing->trust, Trust::everybody);
    PyObject* imported = hand_on(thread, raw, throwing);
    tracing->trust = outer;
    return imported;
  }
  FrameRunner* adopter = this_thread.adopter;
  if (adopter != nullptr && throwing == 0) {
    if (is_disabled(reinterpret_cast<PyObject*>(frame.function()))) {
      const AdoptionScope none(thread, nullptr);
      return hand_on(thread, raw, throwing);
    }
    if (adopter->adopts(frame.code())) return adopter->run_frame(thread, frame);
  }
  return hand_on(thread, raw, throwing);
}

}  // namespace

bool is_in_compiled_call() {
  if (this_thread.inside == nullptr) return false;
  for (auto frame = running_frame(PyThreadState_Get()); frame; frame = frame->caller()) {
    if (is_disabled(reinterpret_cast<PyObject*>(frame->function()))) return false;
    for (const Inside* inside = this_thread.inside; inside != nullptr; inside = inside->outer)
      if (inside->frame == frame->raw()) return true;
  }
  return false;
}

HookScope::HookScope(PyThreadState* thread) : thread_(thread) { install(thread); }
bool HookScope::is_in_place() const {
  return thread_ == nullptr || current_eval(thread_) == eval_frame;
}
void HookScope::remove() {
  if (thread_ != nullptr) uninstall(std::exchange(thread_, nullptr));
}

TracingScope::TracingScope(PyThreadState* thread, Tracing& tracing)
    : tracing_(tracing),
      hook_(thread),
      outer_(exchange_tracing(&tracing)),
      outer_adopter_(std::exchange(this_thread.adopter, nullptr)) {
  hold_collector();
}

TracingScope::~TracingScope() {
  exchange_tracing(outer_);
  this_thread.adopter = outer_adopter_;
  leave_process_alone();
}

void TracingScope::leave_process_alone() {
  if (!hook_.is_in_place()) tracing_.has_lost_sight = true;
  hook_.remove();
  if (std::exchange(holds_collector_, false)) release_collector();
}

ProcessLeftAlone::ProcessLeftAlone(PyThreadState* thread)
    : thread_(thread), installs_(this_thread.installs), holds_(this_thread.holds) {
  uninstall(thread_, installs_);
  release_collector(holds_);
}

ProcessLeftAlone::~ProcessLeftAlone() {
  install(thread_, installs_);
  hold_collector(holds_);
}

AdoptionScope::AdoptionScope(PyThreadState* thread, FrameRunner* runner)
    : hook_(thread), outer_(std::exchange(this_thread.adopter, runner)) {}

AdoptionScope::~AdoptionScope() { this_thread.adopter = outer_; }

PyObject* call_with_frame(FrameRunner& runner, PyThreadState* thread, PyFunctionObject* function,
                          PyObject* callable, PyObject* const* arguments, size_t nargsf,
                          PyObject* names) {
  Entry entry{&runner, function, this_thread.entry};
  this_thread.entry = &entry;
  install(thread);
  PyObject* result = PyObject_Vectorcall(callable, arguments, nargsf, names);
  if (!entry.taken) {  // the arguments did not fit, or someone else runs frames now
    this_thread.entry = entry.outer;
    uninstall(thread);
  }
  return result;
}

}  // namespace smelt::bytecode
