// An op log as plain data.
#pragma once

#include "capture/log/op_log.h"
#include "log/call_log.h"

namespace smelt {

// Who takes, makes and changes what. Values and calls have the numbers that they have in the op log,
// which keeps what is alive: real tensors, generators (Opaque, counted by call), what hooks and
// custom functions do.
CallLog plain_log(const OpLog& log);
// What most questions do without, and what costs more than they do: the types of values (and
// which of them are dual numbers), and literal arguments.
void add_types(CallLog& plain, const OpLog& log);
void add_literals(CallLog& plain, const OpLog& log);

}  // namespace smelt
