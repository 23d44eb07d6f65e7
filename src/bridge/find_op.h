// An op of PyTorch's dispatcher by its full name, "aten::add.Tensor".
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <string>

namespace smelt {

// An Error if this PyTorch has none of that name.
c10::OperatorHandle find_op(const std::string& name);

}  // namespace smelt
