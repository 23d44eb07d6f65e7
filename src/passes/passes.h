// The passes over a Graph and the one runner that calls them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "diagnostics/record.h"
#include "graph/graph.h"

namespace smelt {

// A constant made while compiling.
struct FoldedConstant {
  TensorType type;
  std::shared_ptr<const void> data;
  std::string digest;
};
// Runs one node on constants for real: one entry per result. Nothing when it can't.
using Evaluator =
    std::function<std::optional<std::vector<FoldedConstant>>(const Graph&, const Node&)>;

struct PassOptions {
  std::set<std::string>
      disabled;        // names of passes to skip; an unknown one is an Error that lists all
  Evaluator evaluate;  // empty: constants are not folded
  // Will kernels be made for tensors of this device? Compound ops on them become simple ones.
  // Empty: there will be none at all.
  std::function<bool(const Device&)> has_kernels;
  // Backend::drawing_blocks of a device. Empty: ops that draw random numbers are called.
  std::function<int64_t(const Device&)> drawing_blocks;
  // By input of the graph: it stays as it is from run to run; a change is noticed, and is rare.
  // What is computed from such inputs alone is computed once (passes/splitting/split_frozen.h). May be
  // shorter.
  std::vector<bool> frozen;
  // Is there an op of this name to be called? Empty: no passes that need to ask.
  std::function<bool(OpName)> has_op;
  // Does oneDNN compute with elements of this type on this machine? Empty: with f32 alone.
  std::function<bool(DType)> onednn_takes;
  // After each pass check the graph, and the pass's "changed" against the graph's hash.
  bool verify = true;
};

struct PassInfo {
  const char* name;
  const char* help;
  bool (*run)(Graph& graph, const PassOptions& options);  // true: the graph changed
};
const std::vector<PassInfo>& all_passes();

// Every pass in order: skipped if disabled, timed, verified, its "changed" compared with the hash,
// dumped (SMELT_LOG=passes), recorded.
void run_passes(Graph& graph, const PassOptions& options, Record& record);
// One pass under the same rules, disabled or not.
void run_pass(Graph& graph, const PassInfo& pass, const PassOptions& options, Record& record);

#define SMELT_PASS(name, help) bool name(Graph& graph, const PassOptions& options);
#include "passes/passes.def"
#undef SMELT_PASS

}  // namespace smelt
