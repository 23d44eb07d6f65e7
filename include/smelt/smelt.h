// smelt for LibTorch programs: write a tensor program down once, run it many times. No Python
// involved.
//
//   #include <smelt/smelt.h>
//
//   auto step = [&](const std::vector<torch::Tensor>& in) -> std::vector<torch::Tensor> {
//     torch::Tensor loss = torch::mse_loss(model->forward(in[0]), in[1]);
//     std::vector<torch::Tensor> grads = torch::autograd::grad({loss}, model->parameters());
//     grads.insert(grads.begin(), loss);
//     return grads;
//   };
//   smelt::Graph graph = smelt::record(step, {x, y});
//   std::vector<torch::Tensor> results = graph.run({x, y});
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "smelt/errors.h"

#if defined(__GNUC__)
#define SMELT_API __attribute__((visibility("default")))
#else
#define SMELT_API
#endif

namespace smelt {

// A recorded tensor program. Copies share it; run() may be called from several threads at once.
class SMELT_API RecordedGraph {
 public:
  struct Impl;
  explicit RecordedGraph(std::shared_ptr<const Impl> impl);

  // Computes the outputs for these arguments, in the order the recorded function took them. What
  // the function changed in place (arguments, parameters, running statistics, .grad) is changed
  // here as well. Arguments must have the shapes, strides, dtypes and devices they were recorded
  // with, dynamic dimensions aside; an Error says which one does not.
  std::vector<at::Tensor> run(const std::vector<at::Tensor>& arguments) const;

  // The program as text, one line per op.
  std::string str() const;
  // What the passes did and how long it took.
  std::string explain() const;
  // Ops, constants and effects aside.
  size_t size() const;

  const Impl& impl() const { return *impl_; }

 private:
  std::shared_ptr<const Impl> impl_;
};

using Function = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

// For each argument the dimensions that stay symbolic, with a name for each: {{0, "batch"}}. Equal
// names mean equal sizes. Arguments beyond the list are static.
using DynamicShapes = std::vector<std::map<int, std::string>>;

// Runs the function once on stand-ins for the arguments and writes down every op it asks for;
// nothing is computed and nothing outside is changed. Tensors that the function reaches by itself
// (parameters, buffers) are inputs of the graph and read at each run. Inside it, gradients come
// from torch::autograd::grad() or backward(); do not read t.grad() there. Throws what the function
// throws; RecordError if it can't be written down (its result depends on tensor contents, say).
SMELT_API RecordedGraph record(const Function& function, const std::vector<at::Tensor>& arguments,
                               const DynamicShapes& dynamic_shapes = {});

// Counters of the process: graphs recorded, runs, ops, times.
SMELT_API std::map<std::string, int64_t> stats();

// "2.11.0": the PyTorch this library was built against; another one at run time is an error.
SMELT_API std::string built_for_torch();

#ifndef SMELT_INTERNAL  // smelt's own sources have another Graph
using Graph = RecordedGraph;
#endif

}  // namespace smelt
