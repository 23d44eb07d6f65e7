#include "capture/bytecode/hook.h"

#include <exception>

#include "base/log.h"
#include "capture/bytecode/runner.h"

namespace smelt::bytecode {
namespace {

// A compiled function whose frame CPython is about to make.
struct Entry {
  Compiled* compiled;
  PyFunctionObject* function;
  Entry* outer;
  bool taken = false;
};

struct ThreadHook {
  Entry* entry = nullptr;
  Tracing* tracing = nullptr;
  Compiled* adopter = nullptr;
};

thread_local ThreadHook this_thread;

// The eval function belongs to the whole process; both are guarded by the GIL.
int installs = 0;
EvalFunction previous_eval = nullptr;

PyObject* eval_frame(PyThreadState* thread, _PyInterpreterFrame* raw, int throwing);

void install(PyThreadState* thread) {
  if (installs++ > 0) return;
  const EvalFunction current = current_eval(thread);
  if (current == eval_frame) return;  // left by someone who had put his own on top of it
  previous_eval = current;
  set_eval(thread, eval_frame);
}

void uninstall(PyThreadState* thread) {
  if (--installs > 0) return;
  if (current_eval(thread) == eval_frame) set_eval(thread, previous_eval);
}

PyObject* enter(PyThreadState* thread, Frame frame) {
  Entry* entry = this_thread.entry;
  entry->taken = true;
  this_thread.entry = entry->outer;
  uninstall(thread);
  return run_root(*entry->compiled, thread, frame);
}

PyObject* eval_frame(PyThreadState* thread, _PyInterpreterFrame* raw, int throwing) {
  const EvalFunction previous = previous_eval;
  if (installs == 0 && current_eval(thread) == eval_frame) set_eval(thread, previous);
  const Frame frame(raw);
  const Entry* entry = this_thread.entry;
  if (entry != nullptr && throwing == 0 && frame.function() == entry->function)
    return enter(thread, frame);
  if (Tracing* tracing = active_tracing()) {
    PyObject* result = nullptr;
    if (follow_frame(*tracing, thread, frame, throwing != 0, &result)) return result;
    if (tracing->unfollowed == 0)
      tracing->trace->stop(BreakReason::c_callback, text_of(frame.code()->co_qualname));
    return previous(thread, raw, throwing);
  }
  Compiled* adopter = this_thread.adopter;
  if (adopter != nullptr && throwing == 0) {
    if (is_disabled(reinterpret_cast<PyObject*>(frame.function()))) {
      const AdoptionScope none(thread, nullptr);
      return previous(thread, raw, throwing);
    }
    if (adopter->adopts(frame.code())) return run_root(*adopter, thread, frame);
  }
  return previous(thread, raw, throwing);
}

}  // namespace

Tracing* current_tracing() { return this_thread.tracing; }

Tracing* active_tracing() {
  Tracing* tracing = this_thread.tracing;
  return tracing != nullptr && tracing->trace->active() ? tracing : nullptr;
}

bool is_tracing() { return active_tracing() != nullptr; }

void end_stopped(const Trace& trace) {
  Tracing* tracing = current_tracing();
  if (tracing == nullptr || tracing->trace != &trace || trace.active() || !tracing->end ||
      tracing->called_back > 0)
    return;
  try {
    std::exchange(tracing->end, nullptr)();
  } catch (const std::exception& problem) {
    log(Log::breaks, std::string("internal: ") + problem.what());  // there is no segment then
  }
}

HookScope::HookScope(PyThreadState* thread) : thread_(thread) { install(thread); }
HookScope::~HookScope() { uninstall(thread_); }

TracingScope::TracingScope(PyThreadState* thread, Tracing& tracing)
    : hook_(thread),
      outer_(std::exchange(this_thread.tracing, &tracing)),
      outer_adopter_(std::exchange(this_thread.adopter, nullptr)) {}

TracingScope::~TracingScope() {
  this_thread.tracing = outer_;
  this_thread.adopter = outer_adopter_;
  collect_again();
}

void TracingScope::collect_again() {
  if (std::exchange(collects_, false)) PyGC_Enable();
}

AdoptionScope::AdoptionScope(PyThreadState* thread, Compiled* compiled)
    : hook_(thread), outer_(std::exchange(this_thread.adopter, compiled)) {}

AdoptionScope::~AdoptionScope() { this_thread.adopter = outer_; }

PyObject* call_with_frame(Compiled& compiled, PyThreadState* thread, PyFunctionObject* function,
                          PyObject* callable, PyObject* const* arguments, size_t nargsf,
                          PyObject* names) {
  Entry entry{&compiled, function, this_thread.entry};
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
