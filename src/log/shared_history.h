// Which passes through traced code use up what others need. In eager each op has a node of its own,
// and a backward pass frees what the nodes on its way have saved: a pass from another result works
// as long as it meets none of them. A compiled piece has one node for all of its results, which has
// to know that.
#pragma once

#include <span>
#include <vector>

#include "log/call_log.h"

namespace smelt {

// [i][j]: after a pass from output i, one from output j raises in eager that the graph has been
// gone through before.
std::vector<std::vector<bool>> used_up_by(const CallLog& log, std::span<const LogValue> outputs);

// [i][k]: a pass from output i may come to input k.
std::vector<std::vector<bool>> reached_by(const CallLog& log, std::span<const LogValue> outputs,
                                          std::span<const LogValue> inputs);

}  // namespace smelt
