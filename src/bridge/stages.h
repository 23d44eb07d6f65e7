// A log whose outputs are computed from each other, as stages that run one behind the other. All
// outputs of a compiled program have one autograd node, which knows of no way from one of them to
// the other: torch.autograd.grad(loss, hidden) would find none, and hidden would have no gradient
// to retain. So the log is parted between such an output and what is computed from it, and each
// stage has a node of its own, on tensors that are real in between.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "bridge/log_program.h"
#include "compile/compile.h"

namespace smelt {

class GraphProgram;

// Where stages begin, as positions in the log's items, the first stage left out. Empty: it takes
// one alone. Forbidden: it takes several, but can't be parted.
struct StageStarts {
  std::vector<size_t> positions;
  // Ops, each a stage alone, whose results are computed from each other: they are called as they
  // are (torch.lstm_cell gives h and c, and computes one from the other).
  std::vector<size_t> called;
  Decision possible = Decision::allow();
};
// `live`, by item: it is needed.
StageStarts find_stages(const OpLog& log, const std::vector<bool>& live,
                        std::span<const LogValue> outputs);

class StagedProgram {
 public:
  // As GraphProgram, whose kind its stages are.
  StagedProgram(const OpLog& log, const std::vector<bool>& live,
                const LogProgram::Interface& interface, const StageStarts& starts, bool interpreted,
                const CompileOptions& options);
  ~StagedProgram();

  std::vector<at::Tensor> run(std::vector<at::Tensor> inputs,
                              std::span<const c10::Scalar> scalars) const;

  bool fails_cleanly() const;
  size_t size() const { return stages_.size(); }
  size_t ops() const;
  std::string str() const;

 private:
  struct Stage {
    std::unique_ptr<const GraphProgram> program;
    std::vector<size_t> inputs, outputs;  // places
    std::vector<size_t> last;             // of the inputs: nobody reads them any more
  };
  std::vector<Stage> stages_;
  std::vector<int32_t> outputs_;  // places; -1: none
  size_t places_ = 0;             // inputs, then what the stages make
  std::vector<at::Generator> generators_;
  bool writes_early_ = false;  // a stage before the last changes an input
};

}  // namespace smelt
