// The autograd nodes of a TrainingProgram's outputs. A pass goes on along the edges of a node also
// where no gradient comes, so that a hook would be called with None, and a node of eager's would
// drop what it has saved. In eager a pass comes to nothing that its result was not computed of. So each result
// has a node of its own, and those of the same inputs lead to one node, where gradients are computed.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bridge/forward_run.h"

namespace smelt {

// Computes the gradients of the inputs of a group of results.
class BackwardNode final : public torch::autograd::Node {
 public:
  using List = torch::autograd::variable_list;

  BackwardNode(std::shared_ptr<ForwardRun> run, const ResultGroup& group, bool is_alone);

  // Makes the nodes of those outputs that take part in autograd, and keeps what the backward needs.
  // `numbers`: those of the run; `symbols`: the values of sizes that vary. `made`: outputs of the forward graph. `before`: what
  // was in the inputs that it changed.
  static void attach(std::shared_ptr<const TrainingProgram> program, std::vector<at::Tensor> inputs,
                     std::span<const c10::Scalar> numbers, std::vector<int64_t> symbols,
                     const std::vector<at::Tensor>& made, std::vector<at::Tensor> before,
                     GeneratorStates states);

  List apply(List&& gradients) override;
  void will_release_variables() override { releases_ = true; }
  // The engine calls this behind such a pass, and PyTorch before it destroys the node.
  void release_variables() override {
    if (std::exchange(has_passed_, false))
      run_->release();
    else
      run_->abandon(group_);
  }
  std::string name() const override { return "SmeltBackward"; }

 private:
  std::vector<torch::autograd::Edge> ways_out() const;

  const std::shared_ptr<ForwardRun> run_;
  const ResultGroup& group_;  // of the program, which the run holds
  const bool is_alone_;
  bool releases_ = false;    // the pass at hand frees what is on its way
  bool has_passed_ = false;  // such a pass has been here, and what it frees has not been freed
};

// Of one of several results, or in front of an input: hands its gradient on.
class ResultNode final : public torch::autograd::Node {
 public:
  using List = torch::autograd::variable_list;

  // `run`: nullptr where nobody needs to know.
  ResultNode(std::shared_ptr<ForwardRun> run, size_t output, torch::autograd::Edge next);

  List apply(List&& gradients) override;
  std::string name() const override { return "SmeltBackward"; }

 private:
  const std::shared_ptr<ForwardRun> run_;
  const size_t output_;
};

}  // namespace smelt
