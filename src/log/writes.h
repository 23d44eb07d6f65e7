// What a log changes of the tensors it is given.
#pragma once

#include "log/call_log.h"

namespace smelt {

// Does it change all of each tensor of the caller that it changes, but for `few` elements? Of one
// changed in part (a cache, one row of a table) the functional form passes over all.
bool writes_whole_tensors(const CallLog& log, int64_t few);

}  // namespace smelt
