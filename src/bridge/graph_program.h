// The functional graph that the recorder makes of a log, run in the log's place. Its results take
// no part in autograd.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bridge/traced_program.h"
#include "smelt/smelt.h"

namespace smelt {

class GraphProgram final : public TracedProgram {
 public:
  // `consumed`: outputs that require gradients, which nobody can compute.
  GraphProgram(LogProgram log, RecordedGraph graph, std::vector<size_t> consumed)
      : TracedProgram(std::move(log)), graph_(std::move(graph)), consumed_(std::move(consumed)) {}

  Kind kind() const override { return Kind::graph; }
  size_t ops() const override { return graph_.size(); }
  std::string str() const override;
  std::vector<Guard> size_guards() const override;
  std::vector<std::string> own_sizes() const override;

 protected:
  RunOutcome run_compiled(const std::vector<at::Tensor>& inputs,
                          std::span<const c10::Scalar> scalars, OnFailure) const override;

 private:
  const RecordedGraph graph_;
  const std::vector<size_t> consumed_;
};

}  // namespace smelt
