#include "capture/bytecode/cpython/other_compilers.h"

#include <algorithm>
#include <string_view>

#include "capture/bytecode/cpython/libraries.h"
#include "capture/bytecode/cpython/names.h"

namespace smelt::bytecode {
namespace {

constexpr std::string_view kWrappers = "torch._dynamo.eval_frame";

PyObject* field_of(PyObject* function, const char* name) {
  PyObject* dict = reinterpret_cast<PyFunctionObject*>(function)->func_dict;
  return dict == nullptr ? nullptr : PyDict_GetItemString(dict, name);
}

// What the function has in its closure by that name.
PyObject* closed_over(PyObject* function, std::string_view name) {
  PyObject* closure = PyFunction_GET_CLOSURE(function);
  const auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function));
  const int first = code->co_nlocalsplus - code->co_nfreevars;
  for (int i = 0; closure != nullptr && i < code->co_nfreevars; ++i)
    if (text_of(PyTuple_GET_ITEM(code->co_localsplusnames, first + i)) == name)
      return PyCell_GET(PyTuple_GET_ITEM(closure, i));
  return nullptr;
}

// torch.compile(f), torch.compiler.disable(f): f.
PyObject* wrapped_by_compiler(PyObject* function) {
  PyObject* id = field_of(function, "_torchdynamo_wrapper_id");
  if (id == nullptr || !PyLong_Check(id) || PyLong_AsVoidPtr(id) != function) {
    PyErr_Clear();
    return nullptr;  // functools.wraps has copied the fields of another one
  }
  return field_of(function, "_torchdynamo_orig_callable");
}

// Modules that are made get a mark of their age: nn.Module.__init__ and __setstate__ without it.
PyObject* unmarked(PyObject* function) {
  constexpr std::string_view kModule = "torch._dynamo.mutation_guard";
  if (is_function_of(function, kModule, "install_generation_tagging_init.<locals>.patched_init"))
    return closed_over(function, "init");
  if (is_function_of(function, kModule,
                     "install_generation_tagging_init.<locals>.patched_setstate"))
    return closed_over(function, "setstate");
  return nullptr;
}

// The call of torch.compile(module): that of nn.Module, with the compiled forward().
PyObject* call_of_base(PyObject* function) {
  if (!is_function_of(function, kWrappers, "OptimizedModule.__call__")) return nullptr;
  PyObject* type = closed_over(function, "__class__");
  if (type == nullptr || !PyType_Check(type)) return nullptr;
  return _PyType_Lookup(reinterpret_cast<PyTypeObject*>(type)->tp_base, names().call);
}

bool is_torchs(PyObject* callable) {
  return PyFunction_Check(callable) && module_of(callable).starts_with("torch.");
}

}  // namespace

PyObject* behind_wrapper(PyObject* function) {
  const std::string_view module = module_of(function);
  if (module == "torch._compile") {  // torch._disable_dynamo: what it wraps is meant for us
    PyObject* inner = field_of(function, "__wrapped__");
    return inner != nullptr && PyFunction_Check(inner) ? inner : nullptr;
  }
  if (!module.starts_with("torch._dynamo.")) return nullptr;
  if (PyObject* inner = unmarked(function)) return inner;
  if (PyObject* inner = call_of_base(function)) return inner;
  if (module != kWrappers) return nullptr;
  PyObject* inner = wrapped_by_compiler(function);
  if (inner == nullptr) return nullptr;
  const bool is_disabled = field_of(function, "_torchdynamo_disable") == Py_True;
  return !is_disabled || is_torchs(inner) ? inner : nullptr;
}

bool is_disabled_elsewhere(PyObject* function) {
  return module_of(function) == kWrappers && behind_wrapper(function) == nullptr &&
         field_of(function, "_torchdynamo_disable") == Py_True;
}

bool is_note_to_compiler(PyObject* function) {
  static constexpr std::string_view kNotes[] = {"graph_break", "mark_static_address"};
  return std::ranges::any_of(kNotes, [&](std::string_view name) {
    return is_function_of(function, "torch._dynamo.decorators", name);
  });
}

bool is_bookkeeping_of_compiler(PyObject* function) {
  const auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function));
  return module_of(function) == "torch._dynamo.utils" &&
         text_of(code->co_qualname).starts_with("ExactWeakKeyDictionary.");
}

bool is_plain_code_of_compiler(PyObject* function) {
  static constexpr std::string_view kMethods[] = {"__getattr__", "__len__", "_call_lazy_check",
                                                  "training"};
  if (is_function_of(function, "torch._dynamo.external_utils", "wrap_inline.<locals>.inner"))
    return true;
  if (is_function_of(function, "torch._dynamo.compiled_autograd", "_disable")) return true;
  return std::ranges::any_of(kMethods, [&](std::string_view name) {
    return is_function_of(function, kWrappers, std::string("OptimizedModule.").append(name));
  });
}

}  // namespace smelt::bytecode
