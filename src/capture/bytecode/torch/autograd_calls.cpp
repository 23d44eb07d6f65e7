// Calls that work on the autograd graph itself: custom autograd functions, torch.autograd.grad,
// requires_grad_(), hooks. The log can't tell what they do by ops, but it can have the call itself
// made again, with the tensors that are there then (TensorLog::begin_call).
//
// A custom function runs code of the user's. Its forward() is followed, so that all it reads is
// guarded; since each run calls it again, the ops in it are left out of the log, and it must
// neither change anything that outlives it nor come behind a change that it might see: a cached
// call makes its changes when the tensor ops are done.
#include <string_view>

#include "capture/bytecode/cpython/known_types.h"
#include "capture/bytecode/cpython/names.h"
#include "capture/bytecode/torch/torch_calls.h"
#include "capture/bytecode/values/operations.h"

namespace smelt::bytecode {
namespace {

// A function of torch's by the name that its code has.
bool is_function(PyObject* function, std::string_view module, const char* name) {
  const auto* object = reinterpret_cast<PyFunctionObject*>(function);
  // Asked about each call: the code's own name tells most of them apart.
  PyObject* qualname = reinterpret_cast<PyCodeObject*>(object->func_code)->co_qualname;
  if (PyUnicode_CompareWithASCIIString(qualname, name) != 0) return false;
  PyObject* found = PyDict_GetItemWithError(object->func_globals, names().name);
  return found != nullptr && PyUnicode_Check(found) && text_of(found) == module;
}

// A function that a call may take along as it is: made by each call anew, but always the same.
bool is_plain_function(PyObject* object) {
  if (!PyFunction_Check(object)) return false;
  const auto* function = reinterpret_cast<PyFunctionObject*>(object);
  return function->func_closure == nullptr && function->func_defaults == nullptr &&
         function->func_kwdefaults == nullptr;
}

// A parameter that the trace made: it is a plain tensor until the steps are done.
bool is_made_parameter(const Trace& trace, PyObject* object) {
  if (PyTuple_CheckExact(object)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); ++i)
      if (is_made_parameter(trace, PyTuple_GET_ITEM(object, i))) return true;
    return false;
  }
  return tensors().is_tensor(object) && trace.is_born(object) &&
         !is_exactly(object, KnownType::tensor);
}

// What begin_call() takes: tensors, constants and tuples of such. They are settled.
bool use_argument(Trace& trace, Value argument) {
  PyObject* object = argument.object;
  if (!PyTuple_CheckExact(object)) {
    const bool is_made = trace.is_born(object) && !tensors().is_tensor(object);
    if (is_made) return is_plain_function(object);
    if (!tensors().is_tensor(object) && !is_constant(object)) return false;
    trace.use(argument);
    return true;
  }
  argument = trace.value(object, argument.ref);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); ++i) {
    PyObject* item = PyTuple_GET_ITEM(object, i);
    if (!use_argument(trace, {item, trace.read_item(argument, i, item)})) return false;
  }
  trace.guard_length(argument);
  return true;
}

std::optional<TensorLog::Call> begin_call(Trace& trace, PyObject* callee,
                                          std::span<const Value> arguments, PyObject* names) {
  std::vector<PyObject*> objects;
  for (const Value& argument : arguments) {
    if (is_made_parameter(trace, argument.object) || !use_argument(trace, argument))
      return std::nullopt;
    objects.push_back(argument.object);
  }
  if (!trace.active()) return std::nullopt;
  const auto call = trace.log().begin_call(callee, objects, names);
  trace.check_log();
  return call;
}

// The whole call is one op of the log. `body` makes it.
template <typename Body>
Result keep_call(Trace& trace, std::string what, PyObject* callee, std::span<const Value> arguments,
                 PyObject* names, const Body& body) {
  const auto begun = begin_call(trace, callee, arguments, names);
  if (!begun) trace.stop(BreakReason::autograd, std::move(what));
  PyObject* result = body();
  if (result == nullptr || !trace.active()) {
    if (result == nullptr) trace.stop(BreakReason::raised, what);
    return {result, 0};
  }
  trace.log().end_call(*begun, result);
  trace.check_log();
  return {result, trace.active() ? trace.adopt(result, 1) : 0};
}

bool has_tensor_that(PyObject* object, const char* field) {
  if (tensors().is_tensor(object)) {
    const Object found = Object::steal(PyObject_GetAttrString(object, field));
    PyErr_Clear();
    return found.get() == Py_True;
  }
  if (!PyTuple_Check(object)) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); ++i)
    if (has_tensor_that(PyTuple_GET_ITEM(object, i), field)) return true;
  return false;
}

bool are_leaves(PyObject* tuple) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i)
    if (!has_tensor_that(PyTuple_GET_ITEM(tuple, i), "is_leaf")) return false;
  return true;
}

// torch._C._FunctionBase.apply, bound to the class.
Object apply_in_c(PyObject* cls) {
  static PyObject* const name = PyUnicode_InternFromString("apply");
  for (auto* type = reinterpret_cast<PyTypeObject*>(cls); type != nullptr; type = type->tp_base) {
    if (type != known_type(KnownType::function_base)) continue;
    PyObject* found = _PyType_Lookup(type, name);
    if (found == nullptr || Py_TYPE(found)->tp_descr_get == nullptr) return {};
    return Object::steal(Py_TYPE(found)->tp_descr_get(found, nullptr, cls));
  }
  return {};
}

// A static method that apply() in C will call back. The function; nullptr if it is something else.
PyObject* expect_callback(Trace& trace, PyTypeObject* cls, PyObject* name) {
  PyObject* found = _PyType_Lookup(cls, name);
  if (found == nullptr || Py_TYPE(found) != &PyStaticMethod_Type) return nullptr;
  const Ref ref = trace.read_type(cls, name, found);
  Object function = Object::steal(PyObject_GetAttr(found, names().func));
  if (!function || !PyFunction_Check(function.get())) return nullptr;
  const Ref inner = trace.read(NodeKind::attribute, {found, ref}, names().func, 0, function.get());
  return may_call_back(trace, {function.get(), inner}) ? function.get() : nullptr;
}

// With forward(ctx, ...), or with forward(...) and setup_context(), Function.apply() hands on to C
// what it was given; for the latter it fills in defaults before.
bool expect_callbacks(Trace& trace, PyTypeObject* cls, size_t arguments) {
  static PyObject* const forward_name = PyUnicode_InternFromString("forward");
  static PyObject* const setup_name = PyUnicode_InternFromString("setup_context");
  PyObject* forward = expect_callback(trace, cls, forward_name);
  PyObject* setup = expect_callback(trace, cls, setup_name);
  if (forward == nullptr || setup == nullptr) return false;
  const auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(setup));
  if (text_of(code->co_qualname) == "_SingleLevelFunction.setup_context") return true;
  code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(forward));
  return code->co_argcount == static_cast<int>(arguments) && code->co_kwonlyargcount == 0 &&
         !(code->co_flags & (CO_VARARGS | CO_VARKEYWORDS));
}

// Function.apply. Where nothing needs a gradient, it is forward() and nothing else.
bool call_apply(Trace& trace, std::span<const Value> arguments, PyObject* keywords,
                Result* result) {
  if (arguments.empty() || keywords != nullptr || !PyType_Check(arguments[0].object)) return false;
  PyObject* cls = arguments[0].object;
  arguments = arguments.subspan(1);
  if (is_transformed(trace, arguments)) return false;
  const Object apply = apply_in_c(cls);
  if (!apply || !expect_callbacks(trace, reinterpret_cast<PyTypeObject*>(cls), arguments.size()))
    return false;
  trace.hold(apply.get());
  const Trace::Mark start = trace.mark();
  // Without it too, if no gradient is needed.
  const auto begun = begin_call(trace, apply.get(), arguments, nullptr);
  {
    const Transparent transparent(&trace, true);
    result->object = call_plainly(apply.get(), arguments, nullptr);
  }
  trace.check_log();
  if (result->object == nullptr) {
    trace.stop(BreakReason::raised, "a custom autograd function");
    return true;
  }
  if (has_tensor_that(result->object, "requires_grad")) {
    if (!begun || trace.has_changed(start) || trace.has_pending_change() ||
        !trace.state.context_values.empty())
      trace.stop(BreakReason::autograd, "a custom autograd function with other effects");
    std::vector<PyObject*> objects;
    for (const Value& argument : arguments) objects.push_back(argument.object);
    if (trace.active()) trace.log().end_function(*begun, objects, result->object);
    trace.check_log();
  }
  if (trace.active()) result->ref = trace.adopt(result->object);
  return true;
}

// Hooks and custom functions that the pass would call.
bool stops_at_python(Trace& trace, std::span<const Value> arguments) {
  if (arguments.empty() || !tensors().backward_runs_python(arguments[0].object)) return false;
  trace.stop(BreakReason::backward, "Python code in it: hooks, custom functions");
  return true;
}

// What tensors `grad` has now is looked at, by each cached call too.
bool read_grad(Trace& trace, Value leaf) {
  static PyObject* const name = PyUnicode_InternFromString("grad");
  if (trace.has_set_grad(leaf.object)) return true;
  const Result grad = get_attribute(&trace, leaf, name);
  const Object held = Object::steal(grad.object);
  if (!held) return false;
  trace.use({held.get(), grad.ref});
  return trace.active();
}

// BackwardCFunction.apply, by which the engine calls the backward of a custom function.
bool expect_function(Trace& trace, PyObject* context) {
  static PyObject* const name = PyUnicode_InternFromString("apply");
  if (!trace.is_born(context) || !trace.log().is_function(context)) return false;
  PyTypeObject* type = Py_TYPE(context);
  PyObject* found = _PyType_Lookup(type, name);
  return found != nullptr && PyFunction_Check(found) &&
         is_function(found, "torch.autograd.function", "BackwardCFunction.apply") &&
         may_call_back(trace, {found, trace.read_type(type, name, found)});
}

// Hooks on tensors and custom functions are followed while the pass runs. A run of the log has
// PyTorch call them, so that they must not see a change that steps make later. False: the pass
// calls other code as well. `accumulates`: else it is not known which hooks it calls.
bool expect_hooks(Trace& trace, PyObject* outputs, bool accumulates) {
  static PyObject* const name = PyUnicode_InternFromString("_backward_hooks");
  const auto hooked = tensors().pass_hooks(outputs);
  if (!hooked || trace.backward.is_running || trace.has_pending_change() ||
      !trace.state.context_values.empty())
    return false;
  for (const Tensors::PassHooks& hooks : *hooked) {
    if (hooks.context) {
      if (!expect_function(trace, hooks.context.get())) return false;
      continue;
    }
    if (!accumulates) return false;
    Value dict;
    Object held;
    if (hooks.leaf) {
      const Value leaf = trace.value(hooks.leaf.get());
      if (leaf.ref == 0 || trace.is_born(leaf.object)) return false;
      const Result found = get_attribute(&trace, leaf, name);
      held = Object::steal(found.object);
      if (held.get() != hooks.dict.get()) return false;
      dict = {held.get(), found.ref};
      trace.guard_keys(dict);
    }
    PyObject *key, *function;
    Py_ssize_t at = 0;
    while (trace.active() && PyDict_Next(hooks.dict.get(), &at, &key, &function)) {
      const auto own = trace.backward.hooks.find(function);
      if (own != trace.backward.hooks.end() && hooks.leaf) return false;  // one more in each call
      if (own == trace.backward.hooks.end() && !hooks.leaf) return false;
      const Value value =
          hooks.leaf ? Value{function, trace.read_dict(dict, key, function)} : own->second;
      if (!may_call_back(trace, value)) return false;
    }
  }
  return trace.active();
}

// While a pass runs, and its hooks are followed.
class HookedPass {
 public:
  explicit HookedPass(Trace& trace) : trace_(trace), transparent_(&trace, true) {
    trace.backward.is_running = true;
    trace.log().pause();
  }
  ~HookedPass() {
    trace_.backward.is_running = false;
    if (trace_.active()) trace_.log().resume();
  }
  HookedPass(const HookedPass&) = delete;
  HookedPass& operator=(const HookedPass&) = delete;

 private:
  Trace& trace_;
  const Transparent transparent_;
};

// Variable._execution_engine.run_backward, which _engine_run_backward() calls.
Object engine_in_c(PyObject* function) {
  Object found = Object::share(PyDict_GetItemString(PyFunction_GET_GLOBALS(function), "Variable"));
  for (const char* name : {"_execution_engine", "run_backward"})
    if (found) found = Object::steal(PyObject_GetAttrString(found.get(), name));
  PyErr_Clear();
  return found;
}

PyObject* call_pass(Trace& trace, Value function, std::span<const Value> arguments,
                    PyObject* keywords, bool has_hooks) {
  const Object engine = has_hooks ? engine_in_c(function.object) : Object();
  if (has_hooks && !engine) trace.stop(BreakReason::backward, "an engine that is not PyTorch's");
  if (!has_hooks || !trace.active()) {
    const Unfollowed unfollowed(&trace, false);
    return call_plainly(function.object, arguments, keywords);
  }
  const Trace::Mark start = trace.mark();
  PyObject* result;
  {
    const HookedPass pass(trace);
    result = call_plainly(engine.get(), arguments, keywords);
  }
  if (trace.has_changed(start)) trace.stop(BreakReason::backward, "hooks with other effects");
  return result;
}

// A pass that adds to the gradients of all it reaches. Those are tensors that the trace knows, as
// all that leads to them is in it.
Result run_backward(Trace& trace, Value function, std::span<const Value> arguments,
                    PyObject* keywords, bool has_hooks) {
  PyObject* inputs = arguments[4].object;  // empty: all
  std::vector<Object> held = tensors().backward_leaves(arguments[0].object, inputs);
  std::vector<Value> leaves;
  const bool has_leaves = !held.empty();
  for (Object& tensor : trace.log().retained(arguments[0].object))
    held.push_back(std::move(tensor));
  if (PyTuple_GET_SIZE(inputs) > 0 && (!has_leaves || !are_leaves(inputs)))
    trace.stop(BreakReason::backward,
               "backward(inputs=...) with others than leaves that it reaches");
  for (const Object& leaf : held) {
    leaves.push_back(trace.value(leaf.get()));
    if (leaves.back().ref == 0 || !read_grad(trace, leaves.back()))
      trace.stop(BreakReason::backward, "a pass through code that was not followed");
  }
  for (const Value& argument : arguments.first(5))
    if (!use_argument(trace, argument)) trace.stop(BreakReason::backward, "backward()");
  if (trace.active() &&
      !trace.log().begin_backward(arguments[0].object, arguments[1].object, inputs,
                                  arguments[2].object == Py_True, arguments[3].object == Py_True))
    trace.check_log();
  PyObject* result = call_pass(trace, function, arguments, keywords, has_hooks);
  if (result == nullptr) trace.stop(BreakReason::raised, "a backward pass");
  if (trace.active()) {
    trace.log().end_backward();
    trace.add_grads(leaves);
    trace.check_log();
  }
  return {result, 0};
}

// One that gives gradients, and leaves those of tensors alone.
Result run_grad(Trace& trace, Value function, std::span<const Value> arguments, PyObject* keywords,
                bool has_hooks) {
  for (const Value& argument : arguments)
    if (!use_argument(trace, argument)) trace.stop(BreakReason::autograd, "torch.autograd.grad");
  const auto is_true = [&](size_t i) { return arguments[i].object == Py_True; };
  if (trace.active() &&
      !trace.log().begin_grad(arguments[0].object, arguments[1].object, arguments[4].object,
                              is_true(2), is_true(3), is_true(5)))
    trace.check_log();
  PyObject* result = call_pass(trace, function, arguments, keywords, has_hooks);
  if (result == nullptr) trace.stop(BreakReason::raised, "a backward pass");
  if (!trace.active()) return {result, 0};
  trace.log().end_grad(result);
  trace.check_log();
  return {result, trace.active() ? trace.adopt(result, 1) : 0};
}

// Variable._execution_engine.run_backward behind torch.autograd.grad and backward().
bool call_engine(Trace& trace, Value function, std::span<const Value> arguments, PyObject* keywords,
                 Result* result) {
  bool accumulates = true;
  const Py_ssize_t named = keywords == nullptr ? 0 : PyTuple_GET_SIZE(keywords);
  for (Py_ssize_t i = 0; i < named; ++i)
    if (text_of(PyTuple_GET_ITEM(keywords, i)) == "accumulate_grad")
      accumulates = arguments[arguments.size() - static_cast<size_t>(named - i)].object != Py_False;
  if (!arguments.empty() && is_transformed(trace, arguments)) {
    if (accumulates) trace.stop(BreakReason::transform, "backward()");
    if (!trace.active() || stops_at_python(trace, arguments)) return false;
    *result = call_transformed_pass(trace, function, arguments, keywords);
    return true;
  }
  const bool has_hooks = !arguments.empty() && tensors().backward_runs_python(arguments[0].object);
  if (has_hooks && !expect_hooks(trace, arguments[0].object, accumulates)) {
    stops_at_python(trace, arguments);
    return false;
  }
  if (accumulates) {
    const bool is_known = arguments.size() - static_cast<size_t>(named) == 5 &&
                          PyTuple_CheckExact(arguments[4].object);
    if (!is_known) {
      trace.stop(BreakReason::backward, "backward(inputs=...)");
      return false;
    }
    *result = run_backward(trace, function, arguments, keywords, has_hooks);
    return true;
  }
  if (arguments.size() - static_cast<size_t>(named) != 6 || named != 1) {
    trace.stop(BreakReason::backward, "torch.autograd.grad with further arguments");
    return false;
  }
  *result = run_grad(trace, function, arguments, keywords, has_hooks);
  return true;
}

// requires_grad_() of a tensor that is so already, which its guard tells: zero_grad() in place says
// it of each gradient.
bool is_so_already(std::string_view name, std::span<const Value> arguments, PyObject* keywords) {
  if (name != "requires_grad_" || arguments.empty() || arguments.size() > 2) return false;
  if (keywords != nullptr && text_of(PyTuple_GET_ITEM(keywords, 0)) != "requires_grad")
    return false;
  PyObject* wanted = arguments.size() == 2 ? arguments[1].object : Py_True;
  return tensors().is_tensor(arguments[0].object) && PyBool_Check(wanted) &&
         has_tensor_that(arguments[0].object, "requires_grad") == (wanted == Py_True);
}

// requires_grad_() of a tensor that ops have made.
bool requires_grad(Trace& trace, Value callee, std::span<const Value> arguments, PyObject* keywords,
                   Result* result) {
  if (arguments.empty() || arguments.size() > 2 || !tensors().is_tensor(arguments[0].object) ||
      !trace.is_born(arguments[0].object))
    return false;
  for (const Value& argument : arguments)
    if (!use_argument(trace, argument)) return false;
  if (!trace.active()) return false;
  {
    const Unfollowed unfollowed(&trace, false);
    result->object = call_plainly(callee.object, arguments, keywords);
  }
  if (result->object == nullptr) {
    trace.stop(BreakReason::raised, "requires_grad_()");
    return true;
  }
  const bool value = has_tensor_that(result->object, "requires_grad");
  if (!trace.log().require_grad(result->object, value))
    trace.stop(BreakReason::autograd, "requires_grad_() of a tensor that was there before");
  trace.check_log();
  result->ref = trace.active() ? trace.adopt(result->object) : 0;
  return true;
}

bool retains_grad(Trace& trace, Value callee, std::span<const Value> arguments, Result* result) {
  if (arguments.size() != 1 || !tensors().is_tensor(arguments[0].object) ||
      !trace.is_born(arguments[0].object) || !use_argument(trace, arguments[0]) || !trace.active())
    return false;
  {
    const Unfollowed unfollowed(&trace, false);
    result->object = call_plainly(callee.object, arguments, nullptr);
  }
  if (result->object == nullptr)
    trace.stop(BreakReason::raised, "retain_grad()");
  else if (!trace.log().retain_grad(arguments[0].object) &&
           !has_tensor_that(arguments[0].object, "is_leaf"))  // where it does nothing
    trace.stop(BreakReason::autograd, "retain_grad()");
  trace.check_log();
  return true;
}

}  // namespace

bool call_autograd(Trace& trace, Value function, std::span<const Value> arguments,
                   PyObject* keywords, Result* result) {
  if (is_function(function.object, "torch.autograd.function", "Function.apply"))
    return call_apply(trace, arguments, keywords, result);
  // Here rather than where they come to it, deep in torch's code.
  const bool is_pass = is_function(function.object, "torch._tensor", "Tensor.backward") ||
                       is_function(function.object, "torch.autograd", "backward") ||
                       is_function(function.object, "torch.autograd", "grad");
  if (is_pass && !arguments.empty() && !tensors().pass_hooks(arguments[0].object) &&
      stops_at_python(trace, arguments))
    return false;
  if (is_function(function.object, "torch.autograd.graph", "_engine_run_backward"))
    return call_engine(trace, function, arguments, keywords, result);
  if (!is_function(function.object, "torch._tensor", "Tensor.register_hook")) return false;
  *result = call_on_graph(trace, function, arguments, keywords);
  const bool is_known = arguments.size() == 2 && keywords == nullptr && trace.active();
  if (is_known && trace.is_born(arguments[0].object)) {
    trace.log().note_registration(arguments[0].object);
    trace.backward.hooks[arguments[1].object] = arguments[1];
    trace.hold(arguments[1].object);
  }
  return true;
}

// Tensor._make_subclass(cls, data, requires_grad), which is nn.Parameter(data): the ops are
// detach() and requires_grad_(). Of a tensor that outlives the call the class is set, by a step.
bool make_parameter(Trace& trace, Value callee, std::span<const Value> arguments,
                    PyObject* keywords, Result* result) {
  if (keywords != nullptr || arguments.size() < 2 || arguments.size() > 3 ||
      !PyType_Check(arguments[0].object) || !tensors().is_tensor(arguments[1].object))
    return false;
  for (const Value& argument : arguments)
    if (!use_argument(trace, argument)) return false;
  if (!trace.active()) return false;
  {
    const Unfollowed unfollowed(&trace);
    result->object = call_plainly(callee.object, arguments, keywords);
  }
  trace.check_log();
  if (result->object == nullptr) {
    trace.stop(BreakReason::raised, "nn.Parameter()");
    return true;
  }
  if (trace.active() &&
      !trace.log().require_grad(result->object, has_tensor_that(result->object, "requires_grad")))
    trace.stop(BreakReason::autograd, "nn.Parameter()");
  trace.check_log();
  if (!trace.active()) return true;
  result->ref = trace.adopt(result->object);
  const Value class_of[] = {
      {result->object, result->ref}, {names().cls, 0}, {arguments[0].object, 0}};
  trace.effect(StepKind::set_attr, class_of);
  return true;
}

Result call_on_graph(Trace& trace, Value callee, std::span<const Value> arguments,
                     PyObject* keywords) {
  std::string name = PyFunction_Check(callee.object)
                         ? text_of(reinterpret_cast<PyFunctionObject*>(callee.object)->func_name)
                         : text_of(PyDescr_NAME(callee.object));
  Result own;
  if (!arguments.empty() && tensors().is_wrapped(arguments[0].object))
    return call_on_wrapped(trace, callee, arguments, keywords);
  if (is_so_already(name, arguments, keywords)) {
    for (const Value& argument : arguments) trace.use(argument);
    const Value self = trace.value(arguments[0].object, arguments[0].ref);
    return {Py_NewRef(self.object), self.ref};
  }
  if (name == "requires_grad_" && requires_grad(trace, callee, arguments, keywords, &own))
    return own;
  if (name == "retain_grad" && retains_grad(trace, callee, arguments, &own)) return own;
  const auto body = [&] {
    const Unfollowed unfollowed(&trace, false);
    PyObject* made = call_plainly(callee.object, arguments, keywords);
    // The handle of a hook: it is not known how to make another one.
    if (made != nullptr && !is_constant(made) && !tensors().is_tensor(made)) trace.transient(made);
    return made;
  };
  return keep_call(trace, "torch's " + name, callee.object, arguments, keywords, body);
}

}  // namespace smelt::bytecode
