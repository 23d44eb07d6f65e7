// contextvars.ContextVar: what a trace sets is done again by each cached call, and what it has set
// itself it may read.
#include <algorithm>
#include <string_view>

#include "capture/bytecode/builtins/builtin_call.h"
#include "capture/bytecode/values/operations.h"

namespace smelt::bytecode {
namespace {

bool is_context_var(PyObject* object) { return Py_TYPE(object) == &PyContextVar_Type; }

// What the caller has set: a guard, if it is a constant.
bool read_outer(Trace& trace, Value callee, std::span<const Value> arguments, Result* result) {
  if (!std::ranges::all_of(arguments.subspan(1), [](Value v) { return is_constant(v.object); }))
    return false;
  const Object value = trace.read_state(callee.object, as_tuple(arguments).get());
  if (!value) return false;
  trace.guard_same(arguments[0]);
  for (const Value& v : arguments.subspan(1)) trace.use(v);
  *result = {Py_NewRef(value.get()), 0};
  return true;
}

}  // namespace

bool call_context_var(Trace* trace, Value callee, std::span<const Value> arguments,
                      PyObject* keywords, Result* result) {
  if (Py_TYPE(callee.object) != &PyMethodDescr_Type ||
      PyDescr_TYPE(callee.object) != &PyContextVar_Type || arguments.empty() ||
      !is_context_var(arguments[0].object) || keywords != nullptr)
    return false;
  const std::string_view name = PyUnicode_AsUTF8(PyDescr_NAME(callee.object));
  PyObject* var = arguments[0].object;
  const auto set = trace->state.context_values.find(var);
  if (name == "get") {
    if (set == trace->state.context_values.end())
      return read_outer(*trace, callee, arguments, result);
    PyObject* value = call_plainly(callee.object, arguments, nullptr);
    if (value != nullptr && value != set->second.object) {
      trace->stop(BreakReason::c_function, "ContextVar.get");
      *result = {value, 0};
    } else {
      *result = {value, trace->value(value, set->second.ref).ref};
    }
    return true;
  }
  trace->guard_same(arguments[0]);
  std::vector<Value> inputs{{callee.object, 0}};
  for (const Value& argument : arguments)
    inputs.push_back(trace->value(argument.object, argument.ref));
  if (name == "set" && arguments.size() == 2) {
    if (is_constant(arguments[1].object)) trace->use(arguments[1]);
    result->object = call_plainly(callee.object, arguments, nullptr);
    if (result->object == nullptr) return true;
    result->ref = trace->make_by_effect(inputs, result->object);
    trace->state.context_values[var] =
        is_constant(arguments[1].object) ? Value{arguments[1].object, 0} : inputs[2];
    trace->state.context_values[result->object] = {};  // the token: it is open
    trace->hold(var);
    trace->hold(result->object);
    trace->hold(arguments[1].object);
    return true;
  }
  if (name != "reset" || arguments.size() != 2) return false;
  trace->effect_call(inputs, nullptr);
  trace->state.context_values.erase(var);
  trace->state.context_values.erase(arguments[1].object);
  result->object = call_plainly(callee.object, arguments, nullptr);
  if (result->object == nullptr) trace->stop(BreakReason::raised, "ContextVar.reset");
  return true;
}

}  // namespace smelt::bytecode
