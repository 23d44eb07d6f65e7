// What a run of a TrainingProgram's forward leaves behind for its backward: the tensors that it
// saved, and which results passes have come from.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "bridge/autograd/generator_states.h"
#include "bridge/training_program.h"
#include "capture/log/grad_ops.h"

namespace smelt {

// The nodes of one run share it. Thread-safe.
class ForwardRun {
 public:
  using List = torch::autograd::variable_list;

  // Of a run on `inputs` and `numbers`; `symbols`: the values of sizes that vary; the generators as
  // they were before.
  ForwardRun(std::shared_ptr<const TrainingProgram> program, std::vector<at::Tensor> inputs,
             std::vector<c10::Scalar> numbers, std::vector<int64_t> symbols,
             GeneratorStates states);
  // Keeps what the backward needs, when the outputs of the forward graph have their nodes.
  void save(const std::vector<at::Tensor>& made);

  // Where the gradient of a tracked input goes.
  torch::autograd::Edge edge_of(size_t tracked_input) const;

  // Before save(): that input; in which place its gradient arrives in eager; and whether Python
  // code sees when some of them arrive.
  const at::Tensor& tracked_input(size_t tracked_input) const;
  size_t arrival_of(size_t tracked_input) const;
  bool is_watched() const;

  // The gradients of the tracked inputs, given those of the tracked outputs; undefined where none
  // came. `releases`: the pass frees what is on its way.
  List gradients(List&& of_outputs, bool releases, const NodePtr& node);
  // After a pass that frees what is on its way.
  void release();
  // Nobody has the results of this group any more. It waits for no pass that is under way, which may
  // wait for the GIL that the caller has: what was saved goes with the run then.
  void abandon(const ResultGroup& group);

  // --- several nodes, each for results that are computed of the same inputs ---

  // A pass, by PyTorch's number, has brought this gradient of a tracked output, and comes to its
  // node later.
  void note(int pass, size_t output, const at::Tensor& gradient);
  // What the node of that group returns. The first node that a pass comes to computes the gradients
  // for all the results that the pass has brought one of, and the others take theirs.
  List share(int pass, const ResultGroup& group, List&& of_outputs, bool releases,
             const NodePtr& node);

 private:
  struct Pass {
    List noted, found;           // by tracked output, by tracked input
    std::vector<bool> included;  // by tracked output: `found` has what comes from it
    std::vector<bool> waiting;   // by tracked output: its node has not come yet
    std::vector<bool> used_up;   // by tracked output: when the pass began
  };

  Pass& pass(int number);
  List compute(List&& of_outputs, const std::vector<bool>& used_up, bool releases,
               const NodePtr& node);
  void forget();
  // May what was saved be dropped?
  bool is_done_with(const std::vector<bool>& used_up) const;
  // For gradients of these outputs; nullptr if there is none that could be run.
  std::shared_ptr<const TrainingProgram::Backward> compiled_backward(const List& gradients,
                                                                     const std::vector<bool>& used,
                                                                     const NodePtr& node);
  // Those of the saved tensors that are wanted; a change of another is nobody's error.
  std::vector<at::Tensor> unpack(const std::vector<bool>& wanted, const NodePtr& node);
  std::vector<bool> saved_inputs() const;
  // By tracked output: a pass from it would raise, after one from those in `used`.
  std::vector<bool> used_up_after(const std::vector<bool>& used) const;
  std::vector<at::Tensor> forward_inputs(const std::vector<at::Tensor>& saved) const;
  void drop_numbers(std::vector<at::Tensor>& inputs) const;
  // `gradients` is emptied if nobody will need them, so that each is held no longer than the
  // backward needs it.
  std::optional<List> run_compiled(const TrainingProgram::Backward& backward, List& gradients,
                                   std::vector<at::Tensor> saved) const;
  List run_log(const List& gradients, const NodePtr& node);
  at::Tensor dense_gradient(at::Tensor gradient, const TrainingProgram::Gradient& type) const;

  const std::shared_ptr<const TrainingProgram> program_;
  std::mutex mutex_;
  // Per input: undefined where it is among the saved tensors, whose versions PyTorch checks.
  std::vector<at::Tensor> inputs_;
  const std::vector<c10::Scalar> numbers_;
  const std::vector<int64_t> symbols_;
  std::vector<uint32_t> versions_;
  std::vector<torch::autograd::SavedVariable> saved_;
  GeneratorStates states_;
  std::vector<bool> passed_;    // by tracked output: the last pass came from it
  std::vector<bool> used_up_;   // by tracked output: a pass from it raises
  std::vector<bool> visited_;   // by tracked output: a pass that frees came from it
  std::map<int, Pass> passes_;  // under way, and the last
};

}  // namespace smelt
