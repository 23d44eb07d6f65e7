// One linked program captured several times on tensors that stand in for its inputs, each time with
// all of them at other addresses. Nothing is computed; what the program does to its inputs and what
// it returns is noted as a recipe that can be followed with real tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "base/error.h"
#include "bridge/machine/capture_pool.h"
#include "bridge/machine/host_steps.h"
#include "bridge/machine/linked_program.h"
#include "cuda_graphs/patched_graph.h"

namespace smelt {

// A tensor that a run makes, returns, or sets as a gradient.
struct MadeTensor {
  int32_t input = -1;    // >= 0: it is that input
  int32_t storage = -1;  // >= 0: it lies in that fresh storage
  std::vector<int64_t> sizes, strides;
  int64_t offset = 0;
  c10::ScalarType dtype = c10::ScalarType::Undefined;

  friend bool operator==(const MadeTensor&, const MadeTensor&) = default;
};

// What a run does beside its kernels.
struct RunRecipe {
  std::vector<MadeTensor> outputs;
  std::vector<uint64_t> storages;  // bytes of each
  struct GradEffect {
    LinkedStep::Kind kind;
    size_t input;
    MadeTensor value;  // of set_grad
    friend bool operator==(const GradEffect&, const GradEffect&) = default;
  };
  std::vector<GradEffect> grads;  // in their order
  std::vector<uint32_t> rises;    // by input: of its version
  friend bool operator==(const RunRecipe&, const RunRecipe&) = default;
};

struct GraphCaptures {
  Decision possible = Decision::allow();
  RunRecipe recipe;
  std::unique_ptr<cuda_graphs::PatchedGraph> graph;
  // What stood in for the inputs and outputs: nobody may read or write it any more.
  std::vector<at::Tensor> replaced;
};

// Why the program can't be a graph whatever it is given.
Decision can_capture(const LinkedProgram& program);

// `numbers`: what those of the host's part are now.
GraphCaptures capture_graph(const LinkedProgram& program, const HostSteps& host,
                            const std::vector<at::Tensor>& inputs,
                            const std::vector<int64_t>& symbols, const std::vector<Number>& numbers,
                            CaptureStream& on);

}  // namespace smelt
