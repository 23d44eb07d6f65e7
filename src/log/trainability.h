// Whether a log can be one node of autograd, with a compiled forward and a compiled backward.
#pragma once

#include <span>

#include "base/error.h"
#include "log/call_log.h"

namespace smelt {

Decision can_train(const CallLog& log, std::span<const LogValue> inputs,
                   std::span<const LogValue> outputs);

}  // namespace smelt
