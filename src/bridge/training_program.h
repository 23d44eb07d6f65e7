// The program of traced code that takes part in autograd: a compiled forward, and an autograd node
// (backward_node.h) that runs a compiled backward. What it can't do it leaves to the log.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "bridge/log_program.h"
#include "bridge/recorded_graph.h"
#include "bridge/traced_program.h"
#include "compile/compile.h"
#include "passes/rewriting/value_names.h"
#include "passes/splitting/split_joint.h"

namespace smelt {

// Results that are computed of the same inputs: by number among those that require gradients.
struct ResultGroup {
  std::vector<size_t> outputs, inputs;
};

class TrainingProgram final : public TracedProgram,
                              public std::enable_shared_from_this<TrainingProgram> {
 public:
  // Of a log of which can_train() is true (log/trainability.h), beyond what has to hold for a graph
  // without autograd. An Error where it can't be recorded. Not with the GIL held: it runs the
  // autograd engine. `clears_gradients`: all that it does to gradients is to drop some first. It is
  // recorded here, and not to be run before compile().
  TrainingProgram(const OpLog& log, const LogProgram& program, std::span<const LogValue> inputs,
                  std::span<const LogValue> outputs, const CompileOptions& options,
                  bool clears_gradients);
  // (A log with a piece that its backward computes again consists of nothing else.)

  // Makes the forward; the backward too where the code is made in the background, else with the
  // first pass. An Error says why the log is to be run.
  void compile();
  // What the recorded graphs rely on about sizes that vary.
  const std::vector<Guard>& recorded_guards() const { return recorded_guards_; }

  // A pass through a run of the forward made a graph of the gradients, or ran the compiled
  // backward. Where the former is usual the log runs: its forward would be computed twice.
  void note_pass(bool makes_graph) const;

  Kind kind() const override { return Kind::training; }
  size_t ops() const override;
  std::string str() const override;
  std::vector<Guard> size_guards() const override {
    return forward_->program->program().symbols.guards();
  }
  std::vector<std::string> own_sizes() const override;

 protected:
  RunOutcome run_compiled(const std::vector<at::Tensor>& inputs,
                          std::span<const c10::Scalar> scalars, OnFailure) const override;

 private:
  friend class BackwardNode;
  friend class ForwardRun;

  // What a gradient of an output looks like; its sizes are given by the output.
  struct Gradient {
    size_t output;
    std::vector<int64_t> sizes, strides;  // as they were when it was traced
    at::TensorOptions options;
    Sizes varying_sizes, varying_strides;  // in a run; none: as they were
  };
  // The gradients of inputs for one choice of outputs whose gradients are there.
  struct Backward {
    std::unique_ptr<const RecordedGraph::Impl> compiled;  // none: the log has to do it
    std::vector<size_t> saved;                            // which of the saved tensors it takes
    bool may_fail = false;                                // a run may end without a result
  };

  RunOutcome run_forward(const std::vector<at::Tensor>& inputs,
                         std::span<const c10::Scalar> scalars) const;
  std::vector<at::Tensor> gradient_examples() const;
  void keep_examples(const OpLog& log, std::span<const LogValue> inputs);
  void find_varying_gradients(const Graph& joint);
  void find_groups(const OpLog& log, std::span<const LogValue> inputs,
                   std::span<const LogValue> outputs);
  // Is the tracked input one of which some of these tracked outputs are computed?
  bool is_reached(size_t input, const std::vector<bool>& outputs) const;
  void simplify(Recorded& recorded) const;
  SplitGraphs split(Recorded& recorded);
  void find_written(const Graph& forward);
  void describe_saved(const Graph& joint, const std::vector<SavedValue>& saved);
  Backward compile_backward(SplitGraphs split, std::vector<size_t> saved, Recorded rest) const;
  Recorded record_backward(const std::vector<bool>& used,
                           const std::vector<at::Tensor>& inputs) const;
  Backward split_backward(Recorded recorded) const;
  void make_later(const std::vector<bool>& used, Recorded recorded) const;
  // Would a backward for these outputs be compiled for a pass or two? Where passes make graphs of
  // the gradients the log is about to take over.
  bool is_too_early_for(const std::vector<bool>& used) const;
  // `used`: by tracked output. `inputs` gives the tensors that went into the forward. Thread-safe.
  std::shared_ptr<const Backward> backward_for(
      const std::vector<bool>& used, const std::function<std::vector<at::Tensor>()>& inputs) const;

  const bool clears_gradients_;
  const OpAmbient ambient_;  // that the log started with
  const CompileOptions options_;
  const size_t outputs_;
  std::vector<at::Tensor> examples_;    // by input, of those whose sizes vary: what it was like
  std::vector<size_t> tracked_inputs_;  // that require gradients
  std::vector<bool> gets_gradient_;     // by tracked input: it is not only detached
  std::vector<size_t> arrivals_;        // by tracked input: in which place its gradient comes
  std::vector<Gradient> tracked_;       // outputs that do
  // [i][j]: a pass from tracked output i frees what one from j needs (shared_history.h).
  std::vector<std::vector<bool>> used_up_by_;
  std::vector<ResultGroup> groups_;
  std::vector<size_t> written_;   // inputs that the forward changes
  std::vector<size_t> changed_;   // of those, the ones whose contents matter to its results
  std::vector<bool> is_scratch_;  // by input: written, and what it holds does not matter
  JointParts parts_;
  KeptTensors kept_;
  bool is_simplified_ = false;  // the joint graph was split behind its passes
  std::vector<SavedValue> saved_;
  std::vector<bool> saved_is_tracked_;  // of saved_: it is an output that requires a gradient
  std::vector<ValueName> names_;        // of saved_
  std::unique_ptr<const RecordedGraph::Impl> forward_;
  std::string backward_text_;
  mutable std::atomic<int> graph_passes_ = 0;  // more with each that makes a graph, then less
  mutable std::mutex mutex_;
  Recorded recorded_;  // until compile()
  std::vector<Guard> recorded_guards_;
  mutable std::optional<std::pair<SplitGraphs, Recorded>> uncompiled_;  // for all gradients
  mutable std::map<std::vector<bool>, std::shared_ptr<const Backward>> backwards_;
};

}  // namespace smelt
