// Runs of a linked program on CUDA as one CUDA graph, launched with the addresses of this run's
// inputs and of fresh outputs: nothing is copied, and nothing that a caller holds is written again.
// A program is captured after a few ordinary runs. What can't be a graph is run as before, with a
// sentence that says why. So is, where that is asked for, what is not quicker as a graph by the
// clock: it is asked once, and programs that a graph can't make quicker, or that need much memory to
// try it, are not captured.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/number.h"
#include "compile/compile.h"

namespace smelt {

class LinkedProgram;
struct HostSteps;

class GraphedRuns {
 public:
  // nullptr: the program has nothing to do with CUDA.
  static std::unique_ptr<GraphedRuns> make(const LinkedProgram& program, GraphUse use);
  ~GraphedRuns();

  // Nothing: the caller is to run it as it is. `changed` as LinkedProgram::run has it, of steps
  // that are not launched as a graph. Thread-safe.
  std::optional<std::vector<at::Tensor>> run(const LinkedProgram& program,
                                             const std::vector<at::Tensor>& inputs,
                                             const std::vector<int64_t>& symbols, bool* changed);

  // "a graph of 12 nodes", or why there is none.
  std::string str() const;

  struct Counts {
    int64_t captured = 0, launched = 0, refused = 0;
    std::vector<std::string> reasons;  // the latest refusals
  };
  static Counts counts();
  static void forget_counts();

 private:
  struct Built;
  struct Ways;

  explicit GraphedRuns(GraphUse use);

  void refuse(const std::string& reason);
  bool fits(const std::vector<at::Tensor>& inputs, const std::vector<int64_t>& symbols) const;
  std::vector<at::Tensor> launch(const LinkedProgram& program,
                                 const std::vector<at::Tensor>& inputs,
                                 const std::vector<int64_t>& symbols);
  std::vector<at::Tensor> build(const LinkedProgram& program, const std::vector<at::Tensor>& inputs,
                                const std::vector<int64_t>& symbols, bool* changed);
  std::vector<at::Tensor> measure(const LinkedProgram& program,
                                  const std::vector<at::Tensor>& inputs,
                                  const std::vector<int64_t>& symbols, bool* changed);
  std::vector<at::Tensor> look(const LinkedProgram& program, const std::vector<at::Tensor>& inputs,
                               const std::vector<int64_t>& symbols, bool* changed);

  // What the host has to do for a run; its numbers.
  void run_host(const LinkedProgram& program, const std::vector<at::Tensor>& inputs,
                const std::vector<int64_t>& symbols, std::vector<Number>& numbers) const;

  const GraphUse use_;
  std::unique_ptr<const HostSteps> host_;
  mutable std::mutex mutex_;
  int calls_ = 0;
  int misfits_ = 0;
  std::string refusal_;  // empty: none
  std::unique_ptr<Built> built_;
  std::unique_ptr<Ways> ways_;  // while it is found out which way is quicker
  std::string times_;           // of both, if they were compared
};

}  // namespace smelt
