// What PyTorch's objects say to Python: numbers in tensors, switches of its state.
#include <string_view>

#include "capture/bytecode/cpython/known_types.h"
#include "capture/bytecode/values/operations.h"

namespace smelt::bytecode {

std::string_view name_in_c(PyObject* callee) {
  return PyCFunction_Check(callee) ? reinterpret_cast<PyCFunctionObject*>(callee)->m_ml->ml_name
                                   : "";
}

bool is_fixed_tensor(Trace& trace, Value tensor) {
  if (!tensors().is_tensor(tensor.object)) return false;
  const LogValue logged = trace.log().value_of(tensor.object);
  return logged >= 0 && trace.log().is_fixed(logged);
}

// Done again by each cached call behind its tensor ops, of which the log knows under what they ran.
Result call_switch(Trace& trace, Value callee, std::span<const Value> arguments,
                   PyObject* keywords) {
  std::vector<Value> inputs{callee};
  for (const Value& argument : arguments) {
    trace.use(argument);
    inputs.push_back(trace.is_born(argument.object) ? argument : Value{argument.object, 0});
  }
  trace.effect_call(inputs, keywords);
  trace.state.bans_saved_hooks |= name_in_c(callee.object) == "_saved_tensors_hooks_disable";
  // An inference mode puts the dispatch keys back that it found: the log's own is not to be there.
  // Python code is run by the one thing that may be imported on the way, by whoever finds it.
  const Unfollowed unfollowed(&trace, false, Trust::everybody);
  PyObject* result = call_plainly(callee.object, arguments, keywords);
  if (result == nullptr) trace.stop(BreakReason::raised, "a change of PyTorch's state");
  return {result, result == nullptr ? 0 : trace.adopt(result)};
}

Result read_number(Trace& trace, Value tensor) {
  static PyObject* const name = PyUnicode_InternFromString("item");
  Method item;
  if (!get_method(&trace, tensor, name, &item)) return {};
  const Object callee = Object::steal(item.callee.object), self = Object::steal(item.self.object);
  const Value argument{self.get(), item.self.ref};
  return call(&trace, {callee.get(), item.callee.ref}, std::span(&argument, self ? 1 : 0), nullptr);
}

bool is_function_context(PyObject* object) {
  for (const PyTypeObject* type = Py_TYPE(object); type != nullptr; type = type->tp_base)
    if (type == known_type(KnownType::function_base)) return true;
  return false;
}

}  // namespace smelt::bytecode
