// Outputs of a log that take part in autograd.
#pragma once

#include <span>

#include "capture/log/op_log.h"
#include "log/stages.h"

namespace smelt {

TrackedOutputs tracked_outputs(const OpLog& log, std::span<const LogValue> outputs);

}  // namespace smelt
