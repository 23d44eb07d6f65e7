// A log whose outputs are computed from each other, or are views of each other, as stages that run
// one behind the other. All
// outputs of a compiled program have one autograd node, which knows of no way from one of them to
// the other: torch.autograd.grad(loss, hidden) would find none, and hidden would have no gradient
// to retain. So the log is parted between such an output and what is computed from it, and each
// stage has a node of its own, on tensors that are real in between.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/error.h"
#include "capture/dispatch/op_log.h"

namespace smelt {

// Where stages begin, as positions in the log's items, the first stage left out. Empty: it takes
// one alone. Forbidden: it takes several, but can't be parted.
struct StageStarts {
  std::vector<size_t> positions;
  // Ops, each a stage alone, that are called as they are: their results are computed from each
  // other (torch.lstm_cell gives h and c, and computes one from the other), or one output is a view
  // of another by them, which PyTorch has to know (logits, logits.t()).
  std::vector<size_t> called;
  Decision possible = Decision::allow();
};
// `live`, by item: it is needed.
StageStarts find_stages(const OpLog& log, const std::vector<bool>& live,
                        std::span<const LogValue> outputs);

// Until when the values of a log are read, by the items that are live.
class Lifetimes {
 public:
  Lifetimes(const OpLog& log, const std::vector<bool>& live);

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
  const OpLog& log_;
  std::vector<size_t> last_read_, last_write_;
};

}  // namespace smelt
