// How a node of the autograd graph is made, in every version of PyTorch.
#pragma once

#include <torch/csrc/autograd/function.h>

#include <memory>
#include <type_traits>
#include <utility>

#include "capture/log/grad_ops.h"

namespace smelt {

// Pointers to nodes are of std:: or of c10, depending on the version.
template <typename Made, typename Pointer = NodePtr, typename... Args>
Pointer make_node(Args&&... args) {
  if constexpr (std::is_same_v<Pointer, std::shared_ptr<torch::autograd::Node>>)
    return std::make_shared<Made>(std::forward<Args>(args)...);
  else
    return Pointer(c10::make_intrusive<Made>(std::forward<Args>(args)...));
}

}  // namespace smelt
