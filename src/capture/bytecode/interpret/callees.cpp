#include "capture/bytecode/interpret/callees.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_map>

#include "capture/bytecode/cpython/libraries.h"
#include "capture/bytecode/cpython/names.h"
#include "capture/bytecode/cpython/other_compilers.h"
#include "capture/bytecode/interpret/disabled.h"

namespace smelt::bytecode {
namespace {

// The code of function transforms, which is a unit: it is followed to its end, or run by CPython.
bool is_of_transforms(std::string_view module) {
  static constexpr std::string_view kModules[] = {
      "torch._functorch.apis", "torch._functorch.vmap", "torch._functorch.eager_transforms",
      "torch._functorch.predispatch", "torch._functorch.utils"};
  return std::ranges::find(kModules, module) != std::end(kModules);
}

// Machinery whose inner workings are of no use in a graph, or that looks at the interpreter itself.
// A module stands for what is below it as well.
bool is_left_alone(std::string_view module) {
  static constexpr std::string_view kModules[] = {"torch._dynamo",
                                                  "torch._inductor",
                                                  "torch.fx",
                                                  "torch._functorch",
                                                  "torch.func",
                                                  "torch.jit._script",
                                                  "torch._subclasses",
                                                  "torch.utils._python_dispatch",
                                                  "torch.utils.checkpoint",
                                                  "torch.profiler",
                                                  "torch.autograd.profiler",
                                                  "torch.utils.data",
                                                  "torch.export",
                                                  "torch._export",
                                                  "torch.library",
                                                  "torch._library",
                                                  "torch.multiprocessing",
                                                  "torch.distributed.fsdp",
                                                  "torch.distributed._composable",
                                                  "torch.distributed.distributed_c10d",
                                                  "torch.autograd.gradcheck",
                                                  "torch.testing._comparison",
                                                  "torch.testing._internal.common_utils",
                                                  "torch.utils.hooks",
                                                  "torch._higher_order_ops",
                                                  "torch.serialization",
                                                  "smelt",
                                                  "pytest",
                                                  "_pytest",
                                                  "logging",
                                                  "warnings",
                                                  "importlib",
                                                  "inspect",
                                                  "traceback",
                                                  "threading",
                                                  "multiprocessing",
                                                  "asyncio",
                                                  "concurrent",
                                                  "subprocess",
                                                  "pickle",
                                                  "copy",
                                                  "tempfile",
                                                  "shutil",
                                                  "socket",
                                                  "gc",
                                                  "weakref",
                                                  "linecache",
                                                  "tokenize",
                                                  "ast",
                                                  "numpy",
                                                  "pdb",
                                                  "bdb",
                                                  "random"};
  // Plain code among the machinery.
  static constexpr std::string_view kFollowed[] = {
      "torch._inductor.test_operators",        "torch.fx.traceback",
      "torch.fx.experimental.symbolic_shapes", "torch._higher_order_ops.invoke_subgraph",
      "torch._functorch.functional_call",      "torch._export.utils"};
  if (std::ranges::find(kFollowed, module) != std::end(kFollowed) || is_of_transforms(module))
    return false;
  for (std::string_view one : kModules)
    if (module == one || (module.starts_with(one) && module[one.size()] == '.')) return true;
  return false;
}

// Modules of which a function is called in a way of its own.
bool has_known_functions(std::string_view module) {
  static constexpr std::string_view kModules[] = {"inspect",
                                                  "copy",
                                                  "weakref",
                                                  "torch._compile",
                                                  "torch._dynamo.eval_frame",
                                                  "torch._dynamo.decorators",
                                                  "torch._dynamo.mutation_guard",
                                                  "torch._dynamo.external_utils",
                                                  "torch.autograd",
                                                  "torch.autograd.function",
                                                  "torch.autograd.graph",
                                                  "torch.cuda",
                                                  "torch.random",
                                                  "torch._tensor",
                                                  "torch._functorch.predispatch"};
  return std::ranges::find(kModules, module) != std::end(kModules);
}

bool is_signature_field(PyObject* function) {
  if (module_of(function) != "inspect") return false;
  const std::string name = text_of(reinterpret_cast<PyFunctionObject*>(function)->func_qualname);
  return name == "Signature.parameters" || name == "Signature.return_annotation" ||
         name == "Parameter.name" || name == "Parameter.default" ||
         name == "Parameter.annotation" || name == "Parameter.kind";
}

// inspect.isclass, isfunction...: they look at types.
bool is_inspection(PyObject* function) {
  if (module_of(function) != "inspect") return false;
  const std::string name = text_of(reinterpret_cast<PyFunctionObject*>(function)->func_qualname);
  return name.starts_with("is") || name == "_has_code_flag";
}

// An op as torch.library.custom_op gives it hands on to the op.
bool is_op_object(PyObject* function) {
  return is_function_of(function, "torch._library.custom_ops", "CustomOpDef.__call__");
}

// copy.copy, which does what the object's class says; deepcopy() knows objects by their addresses.
bool is_shallow_copy(PyObject* function) {
  return module_of(function) == "copy" &&
         text_of(reinterpret_cast<PyFunctionObject*>(function)->func_qualname) == "copy";
}

// How a dict of weak keys or values is read: by its references.
bool is_weak_read(PyObject* function) {
  if (module_of(function) != "weakref") return false;
  const std::string name = text_of(reinterpret_cast<PyFunctionObject*>(function)->func_qualname);
  const size_t dot = name.find('.');
  const std::string_view owner = std::string_view(name).substr(0, dot);
  const std::string_view method =
      dot == std::string::npos ? "" : std::string_view(name).substr(dot + 1);
  return (owner == "WeakKeyDictionary" || owner == "WeakValueDictionary") &&
         (method == "__contains__" || method == "__getitem__" || method == "get");
}

// torch.distributed asks whether there are other processes, before it does anything.
bool asks_for_processes(PyObject* function) {
  return is_function_of(function, "torch.distributed.distributed_c10d", "is_initialized") ||
         is_function_of(function, "torch.distributed.distributed_c10d", "_WorldMeta.WORLD") ||
         is_function_of(function, "torch.distributed.distributed_c10d", "_World.default_pg");
}

}  // namespace

// Most functions are just followed. Asked about each call, so what is known of a name of a module
// is kept. Of a name that a library has, the user may have a module too.
bool is_in_plain_module(PyObject* function) {
  static std::unordered_map<PyObject*, bool> known;
  constexpr size_t kMost = 10'000;
  PyObject* name = PyDict_GetItemWithError(PyFunction_GET_GLOBALS(function), names().name);
  if (name == nullptr) return false;
  const auto found = known.find(name);
  bool is_plain = found != known.end() && found->second;
  if (found == known.end()) {
    const std::string module = text_of(name);
    is_plain = !module.empty() && !is_left_alone(module) && !has_known_functions(module);
    if (known.size() < kMost) known.emplace(Py_NewRef(name), is_plain);
  }
  return is_plain || module_of(function).empty();
}

bool is_unit(PyObject* function) { return is_of_transforms(module_of(function)); }

bool is_followed(PyObject* function) {
  if (is_disabled(function)) return false;
  if (is_in_plain_module(function)) return true;
  return behind_wrapper(function) == nullptr &&
         (!is_left_alone(module_of(function)) || is_signature_field(function) ||
          is_inspection(function) || is_shallow_copy(function) || is_note_to_compiler(function) ||
          is_plain_code_of_compiler(function) || is_weak_read(function) || is_op_object(function) ||
          asks_for_processes(function));
}

}  // namespace smelt::bytecode
