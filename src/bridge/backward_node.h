// The autograd node of a TrainingProgram's outputs.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <string>
#include <vector>

#include "bridge/autograd/generator_states.h"
#include "bridge/training_program.h"

namespace smelt {

class BackwardNode final : public torch::autograd::Node {
 public:
  using List = torch::autograd::variable_list;

  // Of a run of the forward, on `inputs`; the generators as they were before.
  BackwardNode(std::shared_ptr<const TrainingProgram> program, std::vector<at::Tensor> inputs,
               std::vector<int64_t> symbols, GeneratorStates states);

  // Makes it the node of those outputs that take part in autograd, and keeps what the backward
  // needs. `made`: outputs of the forward graph. `before`: what was in the inputs that it changed.
  // `symbols`: the values of sizes that vary.
  static void attach(std::shared_ptr<const TrainingProgram> program, std::vector<at::Tensor> inputs,
                     std::vector<int64_t> symbols, const std::vector<at::Tensor>& made,
                     std::vector<at::Tensor> before, GeneratorStates states);

  List apply(List&& gradients) override;
  void will_release_variables() override { releases_ = true; }
  void release_variables() override;
  std::string name() const override { return "SmeltBackward"; }

 private:
  void save(const std::vector<at::Tensor>& made);
  // For gradients of these outputs; nullptr if there is none that could be run.
  const TrainingProgram::Backward* compiled_backward(const List& gradients,
                                                     const std::vector<bool>& used);
  // Those of the saved tensors that are wanted; a change of another is nobody's error.
  std::vector<at::Tensor> unpack(const std::vector<bool>& wanted);
  std::vector<bool> saved_inputs() const;
  // By tracked output: a pass from it would raise, after one from those in `used`.
  std::vector<bool> used_up_after(const std::vector<bool>& used) const;
  std::vector<at::Tensor> forward_inputs(const std::vector<at::Tensor>& saved) const;
  std::vector<c10::Scalar> take_numbers(std::vector<at::Tensor>& inputs) const;
  // `gradients` is emptied if nobody will need them, so that each is held no longer than the
  // backward needs it.
  std::optional<List> run_compiled(const TrainingProgram::Backward& backward, List& gradients,
                                   std::vector<at::Tensor> saved) const;
  List run_log(const List& gradients);
  at::Tensor dense_gradient(at::Tensor gradient, const TrainingProgram::Gradient& type) const;

  const std::shared_ptr<const TrainingProgram> program_;
  // Per input: undefined where it is among the saved tensors, whose versions PyTorch checks.
  std::vector<at::Tensor> inputs_;
  const std::vector<int64_t> symbols_;
  std::vector<uint32_t> versions_;
  std::vector<torch::autograd::SavedVariable> saved_;
  GeneratorStates states_;
  std::vector<bool> passed_;   // by tracked output: the last pass came from it
  std::vector<bool> used_up_;  // by tracked output: a pass from it raises
  bool releases_ = false;      // the pass at hand frees what is on its way
};

}  // namespace smelt
