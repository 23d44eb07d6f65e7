// Finds the tensors in what a call has returned, for capture/bytecode/run/pass_timer.h.
#include "capture/bytecode/run/pass_timer.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <vector>

#include "background/background.h"
#include "binding/binding.h"
#include "binding/tensors.h"
#include "bridge/autograd/time_pass.h"

namespace smelt {
namespace {

constexpr int kDeepest = 4;

// Without running the user's code.
void find_tensors(PyObject* object, int depth, std::vector<at::Tensor>& found) {
  if (is_tensor_object(object)) {
    found.push_back(THPVariable_Unpack(object));
  } else if (depth < kDeepest && PyDict_Check(object)) {
    Py_ssize_t position = 0;
    PyObject *key, *value;
    while (PyDict_Next(object, &position, &key, &value)) find_tensors(value, depth + 1, found);
  } else if (depth < kDeepest && (PyTuple_Check(object) || PyList_Check(object))) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); ++i)
      find_tensors(PySequence_Fast_GET_ITEM(object, i), depth + 1, found);
  }
}

class TorchPassTimer final : public bytecode::PassTimer {
 public:
  bool with_gradients() const override { return at::GradMode::is_enabled(); }
  bool is_compiling() const override { return background::pending() > 0; }
  bool is_on_device(PyObject* result) const override {
    std::vector<at::Tensor> found;
    find_tensors(result, 0, found);
    return std::ranges::any_of(
        found, [](const at::Tensor& tensor) { return tensor.defined() && !tensor.is_cpu(); });
  }
  bool time_passes(PyObject* result, std::function<void(int64_t)> spent) const override {
    std::vector<at::Tensor> found;
    find_tensors(result, 0, found);
    return smelt::time_passes(found, std::move(spent));
  }
};

}  // namespace

void bind_pass_timer() {
  static const TorchPassTimer timer;
  bytecode::set_pass_timer(&timer);
}

}  // namespace smelt
