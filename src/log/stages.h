// A log as stages that run one behind the other: where outputs are computed from each other, or are
// views of each other, and where it has ops that no graph takes (calls of Python code, results
// whose size depends on contents), which are called as they are between compiled ones. All outputs
// of a compiled program have one autograd node, which knows of no way from one of them to the
// other: torch.autograd.grad(loss, hidden) would find none, and hidden would have no gradient to
// retain. So the log is parted between such an output and what is computed from it, and each stage
// has a node of its own, on tensors that are real in between.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/error.h"
#include "log/call_log.h"

namespace smelt {

// Where stages begin, as positions among the log's calls, the first stage left out. Empty: it takes
// one alone. Forbidden: it takes several, but can't be parted.
struct StageStarts {
  std::vector<size_t> positions;
  // Of these, or 0, the ones whose stage is called as it is: no graph takes it, or it may have
  // effects, so that what comes before it has to be done and what comes behind it may be done
  // again; or its results are computed from each other (torch.lstm_cell gives h and c, and computes
  // one from the other), or one output is a view of another by it, which PyTorch has to know
  // (logits, logits.t()).
  std::vector<size_t> called;
  Decision possible = Decision::allow();
};
// Ops that no graph takes, each with what stands close between two of them.
struct CalledRange {
  size_t first, end;
};
// Sizes that contents decide are numbers of the program. Whatever reads a number, or is expected of
// one, is called then.
bool counts(const CallLog& log);
std::vector<CalledRange> find_called(const CallLog& log, const std::vector<bool>& live);
// What only autograd's own graph tells.
struct TrackedOutputs {
  std::vector<LogValue> values;         // outputs that take part in autograd and are still held
  std::vector<int32_t> entangled = {};  // calls that give two of them, one computed from the other
};
// `live`, by call: it is needed. `called`: what has to be called as it is.
StageStarts find_stages(const CallLog& log, const std::vector<bool>& live,
                        std::span<const LogValue> outputs, const TrackedOutputs& tracked,
                        std::vector<CalledRange> called);

// Until when the values of a log are read, by the calls that are live.
class Lifetimes {
 public:
  Lifetimes(const CallLog& log, const std::vector<bool>& live);

  bool is_read_behind(LogValue value, size_t position) const {
    return last_read_[value] >= position;
  }

  // What it takes to start a stage there: tensors handed over which the stages would rather not
  // have, and bytes. Nothing: it can't be done.
  struct Cost {
    size_t trouble = 0;
    int64_t bytes = 0;
    auto operator<=>(const Cost&) const = default;
  };
  std::optional<Cost> cost(size_t position) const;

 private:
  const CallLog& log_;
  std::vector<size_t> last_read_, last_write_;
};

}  // namespace smelt
