// The parts behind capture/bytecode/nodes/tensors.h: what a tensor is like, PyTorch's state, logs
// and programs.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "capture/bytecode/nodes/tensors.h"

namespace smelt {

// Any tensor object.
std::unique_ptr<bytecode::TensorGuard> make_tensor_guard(PyObject* tensor,
                                                         std::span<const int> varying);
// Why the log can't follow the tensor; nothing if it can.
std::optional<bytecode::LogTrouble> refuse_ambient();
std::optional<bytecode::LogTrouble> refuse_tensor(PyObject* tensor);
bool is_tensor_object(PyObject* object);

bytecode::Ambient read_ambient();
std::string ambient_difference(const bytecode::Ambient& was, const bytecode::Ambient& is);

}  // namespace smelt
