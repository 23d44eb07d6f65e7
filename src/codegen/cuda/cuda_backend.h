// NVIDIA's GPUs behind the interface of back ends.
#pragma once

#include "backend/backend.h"

namespace smelt::cuda {

const Backend& cuda_backend();

}  // namespace smelt::cuda
