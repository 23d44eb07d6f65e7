// What only cuDNN knows of its results.
#pragma once

#include <cstdint>
#include <optional>

#include "base/type.h"

namespace smelt {

// The bytes that a batch norm in training keeps for its gradient; nothing where cuDNN can't be
// asked, or for sizes that are not known. Set before the first rule is asked.
inline std::optional<int64_t> (*cudnn_batch_norm_bytes)(const TensorType& input) = nullptr;

}  // namespace smelt
