#include "binding/swapped_objects.h"

#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/python_variable.h>

namespace py = pybind11;

namespace smelt {
namespace {

py::object swap_function() { return py::module_::import("torch._C").attr("_swap_tensor_impl"); }

// Setting the same hooks again registers them with the tensor that is now behind the object.
void register_hooks(const py::object& object) {
  for (const char* name : {"_backward_hooks", "_post_accumulate_grad_hooks"}) {
    const py::object hooks = py::getattr(object, name, py::none());
    if (!hooks.is_none()) object.attr(name) = hooks;
  }
}

}  // namespace

bool SwappedObjects::swap(const at::Tensor& real, const at::Tensor& twin) {
  auto object = py::reinterpret_steal<py::object>(THPVariable_Wrap(real));
  auto other = py::reinterpret_steal<py::object>(THPVariable_Wrap(twin));
  try {
    swap_function()(object, other);
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_RuntimeError)) throw;
    return false;
  }
  pairs_.emplace_back(object, other);
  register_hooks(object);
  return true;
}

void SwappedObjects::restore() noexcept {
  if (pairs_.empty()) return;
  py::error_scope keep;         // an exception may be on its way
  at::autocast::clear_cache();  // holds weak references to the twins, which would forbid the swap
  const py::object function = swap_function();
  while (!pairs_.empty()) {
    const auto [object, other] = std::move(pairs_.back());
    pairs_.pop_back();
    try {
      function(object, other);
    } catch (py::error_already_set& error) {
      error.discard_as_unraisable("smelt: a tensor could not be restored after a recording");
    }
  }
}

}  // namespace smelt
