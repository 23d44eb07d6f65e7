// An op log as plain data.
#pragma once

#include "capture/log/op_log.h"
#include "log/call_log.h"

namespace smelt {

// How much of it is written. Who takes, makes and changes what is in any case; the types of values
// and literal arguments cost more than most questions do.
enum class LogDetail : uint8_t { calls, types, all };

// Values and calls have the numbers that they have in the op log, which keeps what is alive: real
// tensors, generators (Opaque, counted by call), what hooks and custom functions do.
CallLog plain_log(const OpLog& log, LogDetail detail = LogDetail::all);

}  // namespace smelt
