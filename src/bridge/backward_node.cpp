#include "bridge/backward_node.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "bridge/autograd/make_node.h"

namespace smelt {

namespace impl = torch::autograd::impl;

BackwardNode::BackwardNode(std::shared_ptr<ForwardRun> run, const ResultGroup& group, bool is_alone)
    : run_(std::move(run)), group_(group), is_alone_(is_alone) {
  for (torch::autograd::Edge& edge : ways_out()) add_next_edge(std::move(edge));
}

// Where Python code sees gradients arrive, they do so in eager's order: each comes through a node of
// its own, of which PyTorch runs the youngest first.
std::vector<torch::autograd::Edge> BackwardNode::ways_out() const {
  std::vector<torch::autograd::Edge> edges;
  for (const size_t input : group_.inputs) edges.push_back(run_->edge_of(input));
  if (!run_->is_watched()) return edges;
  std::vector<size_t> last_first(edges.size());
  std::iota(last_first.begin(), last_first.end(), 0);
  std::ranges::sort(last_first, std::greater(),
                    [&](size_t i) { return run_->arrival_of(group_.inputs[i]); });
  for (const size_t i : last_first) {
    if (!edges[i].is_valid()) continue;
    const NodePtr node = make_node<ResultNode>(nullptr, 0, std::move(edges[i]));
    edges[i] = {node, node->add_input_metadata(run_->tracked_input(group_.inputs[i]))};
  }
  return edges;
}

void BackwardNode::attach(std::shared_ptr<const TrainingProgram> program,
                          std::vector<at::Tensor> inputs, std::span<const c10::Scalar> numbers,
                          std::vector<int64_t> symbols, const std::vector<at::Tensor>& made,
                          std::vector<at::Tensor> before, GeneratorStates states) {
  const TrainingProgram& of = *program;
  for (size_t i = 0; i < before.size(); ++i)
    if (before[i].defined()) inputs[i] = std::move(before[i]);
  const auto run =
      std::make_shared<ForwardRun>(std::move(program), std::move(inputs),
                                   std::vector<c10::Scalar>(numbers.begin(), numbers.end()),
                                   std::move(symbols), std::move(states));
  const bool is_alone = of.groups_.size() == 1;
  // Those of the results are younger than all that they lead to (forward_run.cpp).
  std::vector<NodePtr> nodes;
  for (const ResultGroup& group : of.groups_)
    nodes.push_back(make_node<BackwardNode>(run, group, is_alone));
  for (size_t i = 0; i < nodes.size(); ++i)
    for (const size_t output : of.groups_[i].outputs) {
      const at::Tensor& result = made[of.tracked_[output].output];
      if (of.tracked_.size() == 1) {
        torch::autograd::set_history(result, nodes[i]);
        continue;
      }
      const torch::autograd::Edge next(nodes[i], nodes[i]->add_input_metadata(result));
      torch::autograd::set_history(result,
                                   make_node<ResultNode>(is_alone ? nullptr : run, output, next));
    }
  run->save(made);
}

BackwardNode::List BackwardNode::apply(List&& gradients) {
  const bool releases = std::exchange(releases_, false);
  List found = is_alone_ ? run_->gradients(std::move(gradients), releases, getptr())
                         : run_->share(torch::autograd::get_current_graph_task_id(), group_,
                                       std::move(gradients), releases, getptr());
  has_passed_ = releases;  // not behind an exception
  return found;
}

ResultNode::ResultNode(std::shared_ptr<ForwardRun> run, size_t output, torch::autograd::Edge next)
    : run_(std::move(run)), output_(output) {
  add_next_edge(std::move(next));
}

ResultNode::List ResultNode::apply(List&& gradients) {
  if (run_ && gradients[0].defined())
    run_->note(torch::autograd::get_current_graph_task_id(), output_, gradients[0]);
  return std::move(gradients);
}

}  // namespace smelt
