// The program of a traced piece of code: its log run op by op, and where it can be done also the
// functional graph that the recorder makes of the log; with autograd, a forward and a backward
// graph.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "bridge/log_program.h"
#include "bridge/staged_program.h"
#include "bridge/training_program.h"
#include "compile/compile.h"
#include "smelt/smelt.h"

namespace smelt {

class GraphProgram {
 public:
  enum class Want : uint8_t {
    log,          // op by op
    graph,        // a graph if the recorder can make one
    fastest,      // whichever is faster to run
    interpreted,  // the graph's kernels run by the loop interpreter, if there can be a graph
  };
  // Counts as a graph in smelt.stats(). `is_stage`: nobody but other stages sees how its outputs
  // are computed from each other.
  GraphProgram(const OpLog& log, const LogProgram::Interface& interface, Want want,
               const CompileOptions& options = {}, bool is_stage = false);
  GraphProgram(const OpLog& log, std::span<const LogValue> inputs,
               std::span<const LogValue> outputs, Want want)
      : GraphProgram(log, LogProgram::Interface{inputs, outputs, {}, {}, {}, {}}, want) {}

  // The inputs are of the types they were traced with. Thread-safe.
  std::vector<at::Tensor> run(std::vector<at::Tensor> inputs,
                              std::span<const c10::Scalar> scalars = {},
                              RunFailure* failure = nullptr) const;

  const LogProgram& log() const { return log_; }
  // Run in the place of the log.
  const std::optional<RecordedGraph>& graph() const { return graph_; }
  // The same where results take part in autograd.
  const std::shared_ptr<const TrainingProgram>& training() const { return training_; }
  // The same in stages, where outputs are computed from each other.
  const std::shared_ptr<const StagedProgram>& staged() const { return staged_; }
  // Why there is none of these; empty if there is, or if it was not asked for.
  const std::string& refusal() const { return refusal_; }

  // Neither of both, and the log's results take part in autograd.
  bool is_left_to_autograd() const {
    return !graph_ && !training_ && !staged_ && log_.uses_autograd() && !refusal_.empty();
  }

  // A run that failed has changed nothing that the caller can see. Asked where it was run.
  bool fails_cleanly() const;
  // Hooks on saved tensors see what its ops save, if it is run here and now.
  bool is_watched() const;
  size_t ops() const;
  std::string str() const;

 private:
  // `calls_apart`: what no graph takes is called between stages.
  Decision can_record(const OpLog& log, std::span<const LogValue> inputs, bool calls_apart) const;
  Decision can_step(const OpLog& log, std::span<const LogValue> inputs,
                    std::span<const LogValue> outputs) const;
  void record(const OpLog& log, std::span<const LogValue> inputs, const CompileOptions& options);
  // The way that is not the log's; nothing where that has to be taken.
  std::optional<std::vector<at::Tensor>> run_compiled(const std::vector<at::Tensor>& inputs,
                                                      std::span<const c10::Scalar> scalars,
                                                      RunFailure* failure) const;
  std::optional<std::vector<at::Tensor>> run_graph(std::vector<at::Tensor> inputs,
                                                   std::span<const c10::Scalar> scalars) const;
  std::optional<std::vector<at::Tensor>> run_training(const std::vector<at::Tensor>& inputs,
                                                      std::span<const c10::Scalar> scalars) const;
  void train(const OpLog& log, std::span<const LogValue> inputs, std::span<const LogValue> outputs,
             const CompileOptions& options);

  LogProgram log_;
  std::optional<RecordedGraph> graph_;
  std::shared_ptr<const TrainingProgram> training_;
  std::shared_ptr<const StagedProgram> staged_;
  std::vector<size_t> consumed_;  // outputs that require gradients, which nobody can compute
  std::vector<size_t> retained_;  // outputs whose gradients are kept: retain_grad()
  bool clears_only_ = false;      // gradients, before a forward that takes part in autograd
  std::string refusal_;
};

}  // namespace smelt
