// Whether this CPython and this PyTorch are as smelt knows them: what it borrows of their internals
// is tried out once, when the package is imported. docs/design/borrowed_internals.md has the list.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/DispatchKey.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <dlfcn.h>
#include <pybind11/eval.h>
#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>

#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "aten/keys.h"
#include "binding/binding.h"
#include "binding/pass_hooks.h"
#include "capture/bytecode/cpython/check_internals.h"

namespace py = pybind11;

namespace smelt {
namespace {

// The library's own name for a key of the headers, and nobody's kernels but the recorder's on it.
bool has_key(c10::DispatchKey key, std::string_view name) {
  return name == c10::toString(key) &&
         c10::Dispatcher::singleton().hasBackendFallbackForDispatchKey(key);
}

bool has_keys(bool is_broken) {
  return has_key(kTopKey, is_broken ? "Undefined" : "DeferredInit") && has_key(kRecordKey, "Fake");
}

struct Probe final : c10::DebugInfoBase {};

// The slot in which the recorder travels is empty, and takes and gives back what is put there.
bool has_free_slot(bool is_broken) {
  const auto slot = c10::DebugInfoKind::MOBILE_RUNTIME_INFO;
  const auto is_free = [&] { return c10::ThreadLocalDebugInfo::get(slot) == nullptr; };
  if (!is_free()) return false;
  const auto probe = std::make_shared<Probe>();
  {
    const c10::DebugInfoGuard guard(slot, probe);
    if (c10::ThreadLocalDebugInfo::get(slot) != (is_broken ? nullptr : probe.get())) return false;
  }
  return is_free();
}

bool has_switch_of_environment(bool is_broken) {
  return std::getenv(is_broken ? "TORCH_NO_SUCH_VARIABLE"
                               : "TORCH_DISABLE_FUNCTIONALIZATION_META_REFERENCE") != nullptr;
}

// A tensor may lie at an address that nobody reads (bridge/machine/aten_host.cpp).
bool takes_any_address(bool is_broken) {
  char* const address = reinterpret_cast<char*>(uintptr_t{1} << 20);
  const at::Tensor tensor = at::from_blob(address, {2}, c10::kByte);
  return tensor.data_ptr() == (is_broken ? nullptr : address);
}

// Two tensors change places behind their Python objects.
bool swaps_tensors(bool is_broken) {
  if (THPVariableClass == nullptr) return false;  // torch is not imported, or not to its end
  const at::Tensor first = at::empty({2}), second = at::empty({3});
  const auto a = py::reinterpret_steal<py::object>(THPVariable_Wrap(first));
  const auto b = py::reinterpret_steal<py::object>(THPVariable_Wrap(second));
  const py::object swap = py::getattr(py::module_::import("torch._C"), "_swap_tensor_impl");
  if (!is_broken) swap(a, b);
  return THPVariable_Unpack(a.ptr()).size(0) == 3 && THPVariable_Unpack(b.ptr()).size(0) == 2;
}

// The record behind functions that pybind11 made has a type by this name (torch_calls.cpp).
bool has_function_records(bool is_broken) {
  const py::object function = py::module_::import("torch._C").attr("_get_tracing_state");
  if (!PyCFunction_Check(function.ptr())) return false;
  PyObject* self = PyCFunction_GET_SELF(function.ptr());
  const std::string_view name = Py_TYPE(self)->tp_name;
  return !is_broken && (PyModule_Check(self) || PyCapsule_CheckExact(self) ||
                        name.find("pybind11_detail_function_record") != std::string_view::npos);
}

// The node of a custom autograd function is known by the name of its type, and gives its context.
bool has_python_nodes(bool is_broken) {
  if (c10::InferenceMode::is_enabled()) return !is_broken;  // nothing has a node then
  const at::AutoGradMode with_gradients(true);
  py::dict scope;
  py::exec(R"(
import torch
class Probe(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)
    @staticmethod
    def backward(ctx, grad):
        return grad
result = Probe.apply(torch.zeros((), requires_grad=True))
plain = result * 2
)",
           scope, scope);
  const py::object result = scope["result"], plain = scope["plain"];
  const auto node = THPVariable_Unpack((is_broken ? plain : result).ptr()).grad_fn();
  return node && is_python_node(*node) &&
         context_of(*node).get() == py::object(result.attr("grad_fn")).ptr() &&
         !is_python_node(*THPVariable_Unpack(plain.ptr()).grad_fn());
}

// On a machine with CUDA: functions of PyTorch's that are found by their names.
bool has_symbols(bool is_broken) {
  void* const cuda = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
  if (cuda == nullptr) return !is_broken;
  const bool has_all = dlsym(cuda, "aoti_torch_get_current_cuda_stream") != nullptr;
  dlclose(cuda);
  return has_all && !is_broken;
}

struct Check {
  const char* name;
  const char* what;
  bool (*holds)(bool is_broken);
};

constexpr Check kChecks[] = {
    {"dispatch_keys", "dispatch keys DeferredInit and Fake (aten/keys.h)", has_keys},
    {"debug_slot", "slot MOBILE_RUNTIME_INFO of thread-local state (capture/dispatch/scope.cpp)",
     has_free_slot},
    {"environment", "switch of functionalization's meta reference (capture/dispatch/scope.cpp)",
     has_switch_of_environment},
    {"far_tensor", "tensors at given addresses (bridge/machine/aten_host.cpp)", takes_any_address},
    {"tensor_swap", "function _swap_tensor_impl (binding/swapped_objects.cpp)", swaps_tensors},
    {"function_records", "records of functions in C (capture/bytecode/torch/torch_calls.cpp)",
     has_function_records},
    {"python_nodes", "nodes of custom autograd functions (binding/pass_hooks.cpp)",
     has_python_nodes},
    {"symbols", "functions that are found by name (bridge/machine/aten_host.cpp)", has_symbols},
};

bool holds(const Check& check, bool is_broken) {
  try {
    return check.holds(is_broken);
  } catch (const std::exception&) {
    PyErr_Clear();
    return false;
  }
}

// A sentence for each kind of internals that is not as it should be. If there are any, no frame is
// followed in this process.
std::vector<std::string> self_test(const std::string& broken) {
  std::vector<std::string> problems = bytecode::check_cpython(broken);
  // Modes of the program's that see each op have nothing to do with this.
  const c10::impl::ExcludeDispatchKeyGuard no_modes(
      c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot}));
  for (const Check& check : kChecks)
    if (!holds(check, broken == check.name))
      problems.push_back(std::string("PyTorch's ") + check.what);
  if (!problems.empty()) bytecode::internals_differ = true;
  return problems;
}

}  // namespace

void bind_self_test(py::module_& m) {
  m.def("self_test", &self_test, py::arg("broken") = "",
        "What of CPython's and PyTorch's internals is not as smelt knows it, a sentence each. "
        "broken: one kind is taken for something else, for tests.");
  m.def("self_test_kinds", [] {
    std::vector<std::string> kinds{"frames", "dicts", "type_versions", "iterators", "known_types"};
    for (const Check& check : kChecks) kinds.emplace_back(check.name);
    return kinds;
  });
}

}  // namespace smelt
