// Python functions and generators followed into their frames.
//
// CPython makes the call: it binds the arguments, fills in defaults, complains about what does not
// fit, and makes the frame. The hook gets that frame and knows it for the one that was asked for
// (Pending). What is left to do here is to say for each slot where its object came from, and to run
// the interpreter on it.
#include "capture/bytecode/interpret/follow.h"

#include <algorithm>

#include "capture/bytecode/cpython/names.h"
#include "capture/bytecode/interpret/interpreter.h"
#include "capture/bytecode/trace/boundary.h"

namespace smelt::bytecode {
namespace {

// Following takes more of the C stack than CPython does.
constexpr size_t kDeepest = 400;

constexpr int kAsync = CO_COROUTINE | CO_ITERABLE_COROUTINE | CO_ASYNC_GENERATOR;

// Mirrors the binding of arguments, for refs.
class Binding {
 public:
  Binding(Trace& trace, Frame frame, const Pending& pending)
      : trace_(trace),
        frame_(frame),
        code_(frame.code()),
        pending_(pending),
        function_{pending.callee, pending.callee_ref},
        keywords_(pending.names != nullptr ? PyTuple_GET_SIZE(pending.names) : 0),
        positional_(static_cast<Py_ssize_t>(pending.arguments.size()) - keywords_),
        named_(code_->co_argcount + code_->co_kwonlyargcount),
        refs_(static_cast<size_t>(frame.locals() + code_->co_stacksize + 1)),
        bound_(static_cast<size_t>(named_)) {}

  std::vector<Ref> run() {
    bind_positional();
    bind_keywords();
    bind_defaults();
    bind_keyword_defaults();
    return std::move(refs_);
  }

 private:
  Value argument(Py_ssize_t index) const { return pending_.arguments[static_cast<size_t>(index)]; }
  PyObject* object_at(int slot) const { return frame_.slots()[slot]; }

  void bind(int slot, Ref ref) {
    refs_[static_cast<size_t>(slot)] = ref;
    bound_[static_cast<size_t>(slot)] = true;
  }

  void bind_positional() {
    const Py_ssize_t direct = std::min<Py_ssize_t>(positional_, code_->co_argcount);
    for (int i = 0; i < direct; ++i) bind(i, argument(i).ref);
    if ((code_->co_flags & CO_VARARGS) == 0) return;
    const auto rest = pending_.arguments.subspan(static_cast<size_t>(direct),
                                                 static_cast<size_t>(positional_ - direct));
    refs_[static_cast<size_t>(named_)] =
        trace_.make(StepKind::build_tuple, rest, object_at(named_));
  }

  int slot_of_keyword(PyObject* name) const {
    for (int i = code_->co_posonlyargcount; i < named_; ++i) {
      PyObject* parameter = PyTuple_GET_ITEM(code_->co_localsplusnames, i);
      if (parameter == name || PyUnicode_Compare(parameter, name) == 0) return i;
    }
    return -1;
  }

  void bind_keywords() {
    std::vector<Value> others;
    for (Py_ssize_t k = 0; k < keywords_; ++k) {
      PyObject* name = PyTuple_GET_ITEM(pending_.names, k);
      const Value value = argument(positional_ + k);
      if (const int slot = slot_of_keyword(name); slot >= 0) {
        bind(slot, value.ref);
      } else {
        others.push_back({name, 0});
        others.push_back(value);
      }
    }
    if ((code_->co_flags & CO_VARKEYWORDS) == 0) return;
    const int slot = named_ + ((code_->co_flags & CO_VARARGS) != 0 ? 1 : 0);
    refs_[static_cast<size_t>(slot)] = trace_.make(StepKind::build_map, others, object_at(slot));
  }

  void bind_defaults() {
    PyObject* defaults = PyFunction_GET_DEFAULTS(function_.object);
    if (defaults == nullptr) return;
    const int first = code_->co_argcount - static_cast<int>(PyTuple_GET_SIZE(defaults));
    Ref tuple = 0;
    bool read = false;
    for (int i = std::max(first, 0); i < code_->co_argcount; ++i) {
      if (bound_[static_cast<size_t>(i)]) continue;
      if (!read) tuple = trace_.read(NodeKind::defaults, function_, nullptr, 0, defaults);
      read = true;
      bind(i, trace_.read_item({defaults, tuple}, i - first, object_at(i)));
    }
  }

  void bind_keyword_defaults() {
    PyObject* defaults = PyFunction_GET_KW_DEFAULTS(function_.object);
    if (defaults == nullptr) return;
    Ref dict = 0;
    bool read = false;
    for (int i = code_->co_argcount; i < named_; ++i) {
      if (bound_[static_cast<size_t>(i)]) continue;
      if (!read) dict = trace_.read(NodeKind::kwdefaults, function_, nullptr, 0, defaults);
      read = true;
      PyObject* name = PyTuple_GET_ITEM(code_->co_localsplusnames, i);
      bind(i, trace_.read_dict({defaults, dict}, name, object_at(i)));
    }
  }

  Trace& trace_;
  Frame frame_;
  PyCodeObject* code_;
  const Pending& pending_;
  const Value function_;
  const Py_ssize_t keywords_, positional_;
  const int named_;  // parameters with a name: positional and keyword-only
  std::vector<Ref> refs_;
  std::vector<bool> bound_;
};

std::vector<Ref> generator_refs(Tracing& tracing, Frame frame, const Pending& pending) {
  std::vector<Ref> refs = std::move(tracing.trace->generators[pending.callee].slots);
  refs.resize(static_cast<size_t>(frame.locals() + frame.code()->co_stacksize + 1));
  const int top = frame.locals() + frame.depth() - 1;  // what was sent
  refs[static_cast<size_t>(top)] = pending.arguments[0].ref;
  return refs;
}

// Runs the frame on the interpreter. Throws nothing: the frame is run by now.
PyObject* follow(Tracing& tracing, PyThreadState* thread, Frame frame, Interpreter& interpreter,
                 Pending& pending, bool throwing) {
  Trace& trace = *tracing.trace;
  const Object code = Object::share(reinterpret_cast<PyObject*>(frame.code()));
  const bool is_generator = frame.is_generator();
  const bool starts_unit = is_unit(reinterpret_cast<PyObject*>(frame.function()));
  tracing.units += starts_unit ? 1 : 0;
  const FrameOutcome outcome = interpreter.run(throwing);
  const bool is_left = tracing.units > 0;
  tracing.units -= starts_unit ? 1 : 0;
  pending.result = interpreter.value_ref();
  keep_account(&trace, [&] {
    if (outcome == FrameOutcome::yielded)
      tracing.trace->generators[pending.callee].slots = interpreter.take_refs();
    if ((outcome == FrameOutcome::stopped || outcome == FrameOutcome::unsupported) &&
        !is_generator && !is_left)
      tracing.stopped_in.push_back({code, interpreter.place()});
  });
  if (outcome == FrameOutcome::stopped) end_stopped(trace);
  if (outcome == FrameOutcome::returned || outcome == FrameOutcome::raised)
    interpreter.let_go_of_frame();
  // Behind a break the callee is a root of its own.
  PyObject* result = outcome == FrameOutcome::stopped && !is_generator && !is_left
                         ? tracing.runner->continue_frame(thread, frame)
                         : interpreter.complete(outcome);
  keep_account(&trace, [&] {
    if (outcome != FrameOutcome::generator || result == nullptr || !trace.active()) return;
    trace.transient(result);
    tracing.trace->generators[result] = {pending.callee_ref, interpreter.take_refs()};
    pending.result = trace.ref_of(result);
  });
  return result;
}

// Likewise, with these refs of its slots. False: the interpreter could not be made, and the frame
// is as it was.
bool try_to_follow(Tracing& tracing, PyThreadState* thread, Frame frame, std::vector<Ref> refs,
                   Pending& pending, bool throwing, PyObject** result) {
  std::optional<Interpreter> interpreter;
  keep_account(tracing.trace, [&] {
    interpreter.emplace(thread, frame, tracing.trace, false, std::move(refs));
    interpreter->set_function_ref(pending.callee_ref);
  });
  if (!interpreter) return false;
  *result = follow(tracing, thread, frame, *interpreter, pending, throwing);
  return true;
}

// C code called back a function. Where it has it from: a class, or its own arguments.
bool is_known_callback(Tracing& tracing, Frame frame, PyObject* function) {
  Trace& trace = *tracing.trace;
  if (tracing.callbacks.contains(function)) return true;
  const PyCodeObject* code = frame.code();
  PyObject* self = code->co_argcount > 0 ? frame.slots()[0] : nullptr;
  if (self == nullptr || text_of(code->co_name) == "__del__") return false;
  if (_PyType_Lookup(Py_TYPE(self), code->co_name) != function) return false;
  trace.guard_type(trace.value(self));
  trace.read_type(Py_TYPE(self), code->co_name, function);
  return true;
}

// What a slot of a callback has may be the default of the parameter: then it depends on the
// function. 0: it is not.
Ref default_ref(Trace& trace, PyObject* function, const PyCodeObject* code, int slot,
                PyObject* object) {
  PyObject* defaults = PyFunction_GET_DEFAULTS(function);
  PyObject* keyword_defaults = PyFunction_GET_KW_DEFAULTS(function);
  const Value from = trace.value(function);
  Ref ref = 0;
  if (trace.is_born(function)) return 0;
  if (slot < code->co_argcount && defaults != nullptr) {
    const Py_ssize_t at = slot - (code->co_argcount - PyTuple_GET_SIZE(defaults));
    if (at < 0 || PyTuple_GET_ITEM(defaults, at) != object) return 0;
    ref = trace.read(NodeKind::defaults, from, nullptr, 0, defaults);
    ref = trace.read_item({defaults, ref}, at, object);
  } else if (slot >= code->co_argcount && slot < code->co_argcount + code->co_kwonlyargcount &&
             keyword_defaults != nullptr) {
    PyObject* name = PyTuple_GET_ITEM(code->co_localsplusnames, slot);
    if (PyDict_GetItemWithError(keyword_defaults, name) != object) return 0;
    ref = trace.read(NodeKind::kwdefaults, from, nullptr, 0, keyword_defaults);
    ref = trace.read_dict({keyword_defaults, ref}, name, object);
  }
  if (ref != 0 && is_constant(object)) trace.use({object, ref});
  return ref;
}

// The refs of a callback's slots: its arguments are known, as everything is that the C code has.
std::vector<Ref> callback_refs(Trace& trace, Frame frame, PyObject* function) {
  const PyCodeObject* code = frame.code();
  std::vector<Ref> refs(static_cast<size_t>(frame.locals() + code->co_stacksize + 1));
  const int named = code->co_argcount + code->co_kwonlyargcount;
  const int rest =
      ((code->co_flags & CO_VARARGS) ? 1 : 0) + ((code->co_flags & CO_VARKEYWORDS) ? 1 : 0);
  for (int i = 0; i < named + rest; ++i) {
    PyObject* object = frame.slots()[i];
    if (object == nullptr || !trace.active()) continue;
    Ref ref = trace.ref_of(object);
    // *args, and what custom autograd functions are given of their inputs: made for the call.
    const bool is_new = i >= named || (PyTuple_CheckExact(object) && !is_constant(object));
    // So is a gradient that a hook is given, which the log knows by now.
    if (ref == 0 && (is_new || tensors().is_tensor(object))) ref = trace.adopt(object);
    if (ref == 0 || !trace.is_born(object)) {
      if (const Ref known = default_ref(trace, function, code, i, object)) ref = known;
    }
    if (ref == 0 && is_function_context(object)) {
      trace.transient(object);
      ref = trace.ref_of(object);
    }
    if (ref == 0 && !is_constant(object))
      trace.stop(BreakReason::unknown_object, Py_TYPE(object)->tp_name);
    refs[static_cast<size_t>(i)] = ref;
  }
  return refs;
}

// What is to be known before a callback is followed; false: it is not followed.
bool prepare_callback(Tracing& tracing, Frame frame, PyObject* owner, Pending& pending, Value& sent,
                      std::vector<Ref>& refs) {
  Trace& trace = *tracing.trace;
  pending.callee = owner;
  if (frame.is_generator()) {
    if (!tracing.trace->generators.contains(owner)) return false;
    sent = trace.value(frame.slots()[frame.locals() + frame.depth() - 1]);
    pending.arguments = {&sent, 1};
    refs = generator_refs(tracing, frame, pending);
    return true;
  }
  if ((frame.code()->co_flags & kAsync) || !is_followed(owner) ||
      !is_known_callback(tracing, frame, owner))
    return false;
  pending.callee_ref = trace.ref_of(owner);
  if (trace.backward.is_running && !trace.log().begin_hook(owner, frame.slots())) {
    trace.check_log();
    return false;
  }
  refs = callback_refs(trace, frame, owner);
  return trace.active();
}

// What it returned goes to C code.
void account_for_result(Trace& trace, PyObject* result, Ref ref, bool looks_inside) {
  const Value value = trace.value(result, ref);
  // The C code goes through what the iterator goes over.
  if (PyIter_Check(value.object) && !touch_iterator(trace, value))
    trace.stop(BreakReason::iterator, Py_TYPE(value.object)->tp_name);
  if (looks_inside || is_constant(value.object))
    trace.use(value);
  else if (value.ref == 0)
    trace.stop(BreakReason::unknown_object, Py_TYPE(value.object)->tp_name);
  if (trace.backward.is_running && trace.active()) {
    trace.log().end_hook(result);
    trace.check_log();
  }
}

bool follow_callback(Tracing& tracing, PyThreadState* thread, Frame frame, PyObject* owner,
                     bool throwing, PyObject** result) {
  Trace& trace = *tracing.trace;
  if (!tracing.transparent || tracing.frames.size() >= kDeepest) return false;
  Pending pending;
  std::vector<Ref> refs;
  Value sent;
  bool is_ready = false;
  keep_account(&trace, [&] {
    const SavedError error;  // that is thrown into the frame
    is_ready = prepare_callback(tracing, frame, owner, pending, sent, refs);
  });
  if (!is_ready || !trace.active()) return false;
  const bool in_pass = std::exchange(trace.backward.is_running, false);
  const bool looks_inside = tracing.looks_inside;
  Pending* outer = std::exchange(tracing.pending, nullptr);
  tracing.transparent = false;
  ++tracing.called_back;
  const bool is_run =
      try_to_follow(tracing, thread, frame, std::move(refs), pending, throwing, result);
  --tracing.called_back;
  tracing.transparent = true;
  tracing.looks_inside = looks_inside;
  tracing.pending = outer;
  trace.backward.is_running = in_pass;
  if (!is_run) return false;
  if (*result != nullptr && trace.active())
    keep_account(&trace, [&] { account_for_result(trace, *result, pending.result, looks_inside); });
  return true;
}

// Makes a call or resumption whose frame is the one to follow.
class Following {
 public:
  Following(Tracing& tracing, Pending& pending)
      : tracing_(tracing), outer_(std::exchange(tracing.pending, &pending)) {}
  ~Following() { tracing_.pending = outer_; }
  Following(const Following&) = delete;
  Following& operator=(const Following&) = delete;

 private:
  Tracing& tracing_;
  Pending* outer_;
};

}  // namespace

bool follow_frame(Tracing& tracing, PyThreadState* thread, Frame frame, bool throwing,
                  PyObject** result) {
  Pending* pending = tracing.pending;
  if (tracing.trust != Trust::nobody) return false;
  auto* owner =
      frame.is_generator() ? frame.generator() : reinterpret_cast<PyObject*>(frame.function());
  if (pending == nullptr || owner != pending->callee)
    return follow_callback(tracing, thread, frame, owner, throwing, result);
  pending->taken = true;
  tracing.pending = nullptr;
  std::vector<Ref> refs;
  const bool is_bound = keep_account(tracing.trace, [&] {
    const SavedError error;
    refs = frame.is_generator() ? generator_refs(tracing, frame, *pending)
                                : Binding(*tracing.trace, frame, *pending).run();
  });
  return is_bound &&
         try_to_follow(tracing, thread, frame, std::move(refs), *pending, throwing, result);
}

Result call_function(Trace& trace, Value function, std::span<const Value> arguments,
                     PyObject* names) {
  Tracing* tracing = active_tracing();
  trace.guard_function(function);
  const auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function.object));
  if (code->co_flags & kAsync) trace.stop(BreakReason::opcode, "await");
  if (tracing != nullptr && tracing->frames.size() >= kDeepest)
    trace.stop(BreakReason::too_long, "400 calls in each other");
  if (tracing == nullptr || tracing->trace != &trace || !trace.active())
    return {call_plainly(function.object, arguments, names), 0};
  Pending pending;
  pending.callee = function.object;
  pending.callee_ref = function.ref;
  pending.arguments = arguments;
  pending.names = names;
  PyObject* result;
  {
    const Following following(*tracing, pending);
    result = call_plainly(function.object, arguments, names);
  }
  if (!pending.taken) {
    if (result != nullptr)
      trace.stop(BreakReason::internal, "a frame that was run by someone else");
    else  // its defaults may be others in another call
      trace.stop(BreakReason::raised, "the arguments of a call");
  }
  return {result, trace.active() ? pending.result : 0};
}

bool send_to_generator(Trace& trace, PyObject* generator, Value sent, PySendResult* status,
                       Result* result) {
  Tracing* tracing = active_tracing();
  if (tracing == nullptr || tracing->trace != &trace || !PyGen_CheckExact(generator) ||
      !tracing->trace->generators.contains(generator))
    return false;
  Pending pending;
  pending.callee = generator;
  pending.arguments = {&sent, 1};
  {
    const Following following(*tracing, pending);
    *status = PyIter_Send(generator, sent.object, &result->object);
  }
  result->ref = trace.active() ? pending.result : 0;
  return true;
}

bool next_generator(Trace& trace, PyObject* generator, Result* result) {
  PySendResult status = PYGEN_ERROR;
  if (!send_to_generator(trace, generator, {Py_None, 0}, &status, result)) return false;
  if (status == PYGEN_RETURN) {
    const Object returned = Object::steal(result->object);
    *result = {};
    if (returned.get() == Py_None) return true;
    const Object end = Object::steal(PyObject_CallOneArg(PyExc_StopIteration, returned.get()));
    if (end) PyErr_SetObject(PyExc_StopIteration, end.get());
  }
  return true;
}

namespace {

class InterpreterFollower final : public Follower {
 public:
  Result call(Trace& trace, Value callee, std::span<const Value> arguments,
              PyObject* names) override {
    return follow_call(&trace, callee, arguments, names);
  }
  bool next_generator(Trace& trace, PyObject* generator, Result* result) override {
    return bytecode::next_generator(trace, generator, result);
  }
};

}  // namespace

Follower& follower() {
  static InterpreterFollower only;
  return only;
}

}  // namespace smelt::bytecode
