// torch.utils.checkpoint.checkpoint(function, ...): its result and its gradients are those of
// function(...). What it asks for is that nothing but the inputs is kept for the backward, which
// computes the rest again. So the function is followed, the log knows which of its ops are meant,
// and the program that is made of them keeps to it (split_joint.h). The traced call itself does
// what checkpoint() does, around the function that is followed.
//
// In eager the code is run a second time. What changes something, in Python or in a tensor that is
// there before, is left to eager; so is a backward pass in the same trace, and the older kind of
// checkpoint (use_reentrant=True), which is an autograd function.
#include "capture/bytecode/cpython/libraries.h"
#include "capture/bytecode/torch/torch_calls.h"
#include "capture/bytecode/values/operations.h"

namespace smelt::bytecode {
namespace {

// What is asked for by keyword; nothing if it is more than can be followed.
struct Request {
  bool keeps_random_state = true;
  bool stops_early = true;
  std::vector<PyObject*> names;  // of arguments that are the function's
  std::vector<Value> arguments;
};

std::optional<Request> read_request(Trace& trace, std::span<const Value> arguments,
                                    PyObject* names) {
  Request request;
  const size_t named = names == nullptr ? 0 : static_cast<size_t>(PyTuple_GET_SIZE(names));
  const size_t positional = arguments.size() - named;
  if (positional == 0) return std::nullopt;
  request.arguments.assign(arguments.begin() + 1,
                           arguments.begin() + static_cast<ptrdiff_t>(positional));
  bool is_reentrant = true;  // and it warns, if it is not said
  for (size_t i = 0; i < named; ++i) {
    PyObject* name = PyTuple_GET_ITEM(names, static_cast<Py_ssize_t>(i));
    const Value& value = arguments[positional + i];
    const std::string text = text_of(name);
    if (text == "use_reentrant" || text == "preserve_rng_state" || text == "early_stop") {
      if (!PyBool_Check(value.object)) return std::nullopt;
      trace.use(value);
      const bool truth = value.object == Py_True;
      if (text == "use_reentrant") is_reentrant = truth;
      if (text == "preserve_rng_state") request.keeps_random_state = truth;
      if (text == "early_stop") request.stops_early = truth;
    } else if (text == "context_fn" || text == "determinism_check" || text == "debug") {
      return std::nullopt;
    } else {
      request.names.push_back(name);
      request.arguments.push_back(value);
    }
  }
  if (is_reentrant) return std::nullopt;
  return request;
}

// What checkpoint() does before and after the function, as a generator of its module's.
class Surroundings {
 public:
  Surroundings(Trace& trace, PyObject* checkpoint, PyObject* function, const Request& request)
      : trace_(trace) {
    const Unfollowed unfollowed(&trace_, false);
    const auto global = [&](const char* name) {
      return PyDict_GetItemString(PyFunction_GET_GLOBALS(checkpoint), name);
    };
    PyObject *make = global("_checkpoint_without_reentrant_generator"),
             *contexts = global("noop_context_fn"), *check = global("_DEFAULT_DETERMINISM_MODE");
    if (make == nullptr || contexts == nullptr || check == nullptr) return;
    const size_t positional = request.arguments.size() - request.names.size();
    const Object all = Object::steal(PyTuple_New(static_cast<Py_ssize_t>(6 + positional)));
    const auto set = [&](size_t i, PyObject* object) {
      PyTuple_SET_ITEM(all.get(), static_cast<Py_ssize_t>(i), Py_NewRef(object));
    };
    set(0, function);
    set(1, request.keeps_random_state ? Py_True : Py_False);
    set(2, contexts);
    set(3, check);
    set(4, Py_False);
    set(5, request.stops_early ? Py_True : Py_False);
    for (size_t i = 0; i < positional; ++i) set(6 + i, request.arguments[i].object);
    const Object named = Object::steal(PyDict_New());
    for (size_t i = 0; i < request.names.size(); ++i)
      PyDict_SetItem(named.get(), request.names[i], request.arguments[positional + i].object);
    generator_ = Object::steal(PyObject_Call(make, all.get(), named.get()));
    if (generator_ && !Object::steal(PyIter_Next(generator_.get()))) generator_ = {};
  }

  bool ok() const { return static_cast<bool>(generator_); }

  // The function has returned. False: an error is set.
  bool leave() {
    const Unfollowed unfollowed(&trace_, false);
    const Object more = Object::steal(PyIter_Next(generator_.get()));
    return PyErr_Occurred() == nullptr;
  }
  // It has raised what is set now.
  void leave_raised() {
    const Unfollowed unfollowed(&trace_, false);
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    Object::steal(PyObject_CallMethod(generator_.get(), "throw", "O", value));
    PyErr_Clear();
    PyErr_Restore(type, value, traceback);
  }

 private:
  Trace& trace_;
  Object generator_;
};

}  // namespace

bool call_checkpoint(Trace& trace, Value function, std::span<const Value> arguments,
                     PyObject* names, Result* result) {
  // Of a place where it could not be compiled as it is meant there is no second try.
  if (!trace.guesses.are_allowed ||
      !is_function_of(function.object, "torch.utils.checkpoint", "checkpoint"))
    return false;
  const std::optional<Request> request = read_request(trace, arguments, names);
  if (!request) return false;
  trace.guard_function(function);
  Object all_names;
  if (!request->names.empty()) {
    all_names = Object::steal(PyTuple_New(std::ssize(request->names)));
    for (size_t i = 0; i < request->names.size(); ++i)
      PyTuple_SET_ITEM(all_names.get(), static_cast<Py_ssize_t>(i), Py_NewRef(request->names[i]));
  }
  Surroundings surroundings(trace, function.object, arguments[0].object, *request);
  if (!surroundings.ok()) {
    if (PyErr_Occurred() == nullptr) return false;
    trace.stop(BreakReason::exception, "torch.utils.checkpoint");
    return true;
  }
  trace.guesses.about_flag = true;  // that it can be compiled
  const Trace::Mark start = trace.mark();
  trace.log().begin_recomputed();
  *result = call(&trace, arguments[0], request->arguments, all_names.get());
  if (trace.active()) {
    trace.log().end_recomputed(request->keeps_random_state);
    if (trace.has_changed(start) || trace.has_pending_change())
      trace.stop(BreakReason::autograd, "a checkpoint with other effects");
    trace.check_log();
  }
  if (result->object == nullptr) {
    surroundings.leave_raised();
  } else if (!surroundings.leave()) {
    Py_CLEAR(result->object);
    result->ref = 0;
    trace.stop(BreakReason::exception, "torch.utils.checkpoint");
  }
  return true;
}

}  // namespace smelt::bytecode
