#include "capture/bytecode/trace/tracing.h"

#include <algorithm>
#include <utility>

#include "capture/bytecode/trace/boundary.h"

namespace smelt::bytecode {
namespace {

thread_local Tracing* this_tracing = nullptr;

}  // namespace

Tracing* current_tracing() { return this_tracing; }

Tracing* active_tracing() {
  Tracing* tracing = this_tracing;
  return tracing != nullptr && tracing->trace->active() ? tracing : nullptr;
}

Tracing* exchange_tracing(Tracing* tracing) { return std::exchange(this_tracing, tracing); }

bool is_tracing() { return active_tracing() != nullptr; }

void end_stopped(const Trace& trace) {
  Tracing* tracing = current_tracing();
  if (tracing == nullptr || tracing->trace != &trace || trace.active() || !tracing->end ||
      tracing->called_back > 0 || tensors().is_under_transform())
    return;
  const auto end = std::exchange(tracing->end, nullptr);
  keep_account(tracing->trace, end);
}

Transparent::Transparent(Trace* trace, bool looks_inside) {
  Tracing* tracing = active_tracing();
  if (trace == nullptr || tracing == nullptr || tracing->trace != trace) return;
  entered_ = true;
  transparent_ = std::exchange(tracing->transparent, true);
  looks_inside_ = std::exchange(tracing->looks_inside, looks_inside);
  trust_ = std::exchange(tracing->trust, Trust::nobody);
}

Transparent::~Transparent() {
  if (!entered_) return;
  Tracing* tracing = current_tracing();
  tracing->transparent = transparent_;
  tracing->looks_inside = looks_inside_;
  tracing->trust = trust_;
}

Repeated::Repeated(Trace* trace)
    : trace_(is_following(trace) ? trace : nullptr), transparent_(trace, true) {
  if (trace_ == nullptr) return;
  start_ = trace_->mark();
  ops_ = trace_->log().position();
}

Repeated::~Repeated() {
  if (trace_ == nullptr || !trace_->active()) return;
  if (trace_->has_changed(start_) || trace_->log().position() != ops_)
    trace_->stop(BreakReason::c_callback, "a special method with effects of its own");
}

bool may_call_back(Trace& trace, Value function) {
  Tracing* tracing = active_tracing();
  if (tracing == nullptr || tracing->trace != &trace) return false;
  if (PyMethod_Check(function.object)) {
    PyObject *inner = PyMethod_GET_FUNCTION(function.object),
             *self = PyMethod_GET_SELF(function.object);
    function = trace.value(function.object, function.ref);
    trace.read(NodeKind::method_self, function, nullptr, 0, self);
    function = {inner, trace.read(NodeKind::method_function, function, nullptr, 0, inner)};
  }
  if (!PyFunction_Check(function.object)) return false;
  const auto* object = reinterpret_cast<PyFunctionObject*>(function.object);
  // Called back it is known by nothing but itself.
  if (object->func_closure || object->func_defaults || object->func_kwdefaults)
    trace.guard_same(function);
  else
    trace.guard_function(function);
  trace.hold(function.object);
  tracing->callbacks.insert(function.object);
  return true;
}

Unfollowed::Unfollowed(Trace* trace, bool log, Trust trust) : trace_(trace), log_(log) {
  Tracing* tracing = active_tracing();
  if (trace_ == nullptr || tracing == nullptr || tracing->trace != trace_) {
    trace_ = nullptr;
    return;
  }
  outer_ = std::exchange(tracing->trust, std::max(tracing->trust, trust));
  if (!log_ && tracing->unlogged++ == 0) trace_->log().pause();
}

Unfollowed::~Unfollowed() {
  if (trace_ == nullptr) return;
  Tracing* tracing = current_tracing();
  tracing->trust = outer_;
  if (!log_ && --tracing->unlogged == 0 && trace_->active()) trace_->log().resume();
}

}  // namespace smelt::bytecode
