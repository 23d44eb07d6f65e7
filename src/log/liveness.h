// Which calls of a log are needed.
#pragma once

#include <span>
#include <vector>

#include "base/number.h"
#include "log/call_log.h"

namespace smelt {

struct Liveness {
  std::vector<bool> calls;    // by call: it is needed
  std::vector<bool> numbers;  // by step of the numbers that were asked about: likewise
};

// A call is needed for an output, for a change that is seen from outside, for a number that is
// wanted (`wanted`: places in `numbers`) or that a call takes which is needed, and where it may
// have effects or draws. Memory decides, not values: a write into a view is needed if any tensor on
// that memory is.
Liveness find_live(const CallLog& log, std::span<const LogValue> outputs,
                   std::span<const NumberStep> numbers, std::span<const uint32_t> wanted);

}  // namespace smelt
