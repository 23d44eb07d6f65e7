// C functions that hand on to a special method of what they are given: abs(x), round(x), pow(x, y),
// math.floor(x). Of numbers they are called by builtin_numbers.cpp.
#include <opcode.h>

#include <unordered_map>

#include "capture/bytecode/builtins/builtin_call.h"

namespace smelt::bytecode {
namespace {

// nullptr: the function is none of these.
PyObject* asked_method(std::string_view function) {
  static const auto intern = [](const char* text) { return PyUnicode_InternFromString(text); };
  static const std::unordered_map<std::string_view, PyObject*> names{
      {"abs", intern("__abs__")},
      {"round", intern("__round__")},
      {"floor", intern("__floor__")},
      {"ceil", intern("__ceil__")},
      {"trunc", intern("__trunc__")}};
  const auto found = names.find(function);
  return found == names.end() ? nullptr : found->second;
}

Result absolute(Trace& trace, std::span<const Value> tensor) {
  PyObject* result = call_on_tensors(trace, tensor, [](std::span<const Value> given) {
    return PyNumber_Absolute(given[0].object);
  });
  trace.check_log();
  return {result, result == nullptr ? 0 : trace.adopt(result)};
}

}  // namespace

bool call_on_operands(BuiltinCall& c, std::string_view function, Result* result) {
  if (c.has_keywords() || c.count() == 0) return false;
  const Value self = c.argument(0);
  if (function == "pow") {
    if (c.count() != 2 || (is_constant(self.object) && is_constant(c.argument(1).object)))
      return false;
    *result = binary(&c.trace, NB_POWER, self, c.argument(1));
    return true;
  }
  PyObject* name = asked_method(function);
  if (name == nullptr || is_constant(self.object)) return false;
  if (tensors().is_tensor(self.object) && has_own_method(c.trace, self.object, name)) {
    if (function != "abs" || c.count() != 1) return false;
    *result = absolute(c.trace, c.arguments);
    return true;
  }
  PyObject* method = python_method(self.object, name);
  if (method == nullptr || c.count() > (function == "round" ? 2 : 1)) return false;
  const bool has_none = c.count() == 2 && c.argument(1).object == Py_None;  // round(x, None)
  if (has_none) c.trace.use(c.argument(1));
  *result = call_special(c.trace, method, name, c.arguments.subspan(0, has_none ? 1 : c.count()));
  return true;
}

}  // namespace smelt::bytecode
