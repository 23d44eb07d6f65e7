// Recording twins put behind the user's own Python tensor objects, so that identity, isinstance,
// dict keys, attributes, .grad and hooks are right with no special case; taken back when the
// recording ends.
#pragma once

#include <ATen/core/Tensor.h>
#include <pybind11/pybind11.h>

#include <utility>
#include <vector>

namespace smelt {

class SwappedObjects {
 public:
  SwappedObjects() = default;
  // Swaps back whatever is still swapped; needs the GIL.
  ~SwappedObjects() { restore(); }
  SwappedObjects(const SwappedObjects&) = delete;
  SwappedObjects& operator=(const SwappedObjects&) = delete;

  // Puts the twin behind the Python object of the real tensor. False if PyTorch can't (the tensor
  // has weak references): the object stays as it is.
  bool swap(const at::Tensor& real, const at::Tensor& twin);
  void restore() noexcept;

 private:
  std::vector<std::pair<pybind11::object, pybind11::object>>
      pairs_;  // the user's object, the twin's
};

}  // namespace smelt
