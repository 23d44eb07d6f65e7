// What is behind a RecordedGraph: the graph, its program, and the tensors it captured.
#pragma once

#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "bridge/machine/hot_sizes.h"
#include "bridge/machine/linked_program.h"
#include "bridge/preparation.h"
#include "bridge/run_outcome.h"
#include "capture/dispatch/recorder.h"
#include "compile/compile.h"
#include "diagnostics/record.h"
#include "graph/graph.h"
#include "smelt/smelt.h"

namespace smelt {

struct RecordedGraph::Impl {
  // Improves and lowers a finished recording.
  explicit Impl(Recorded recorded, CompileOptions options = {});

  std::vector<at::Tensor> run(const std::vector<at::Tensor>& arguments) const;
  // For a caller who knows that types and default dtype are the recorded ones. The graph may be
  // none for these arguments all the same: they share memory, or lie elsewhere in it, or a kernel
  // can't compute with them. Those that are moved in are held no longer than needed, if it is
  // compiled with release_inputs.
  // `symbols`: their values, if the graph has any.
  RunOutcome run_typed(std::vector<at::Tensor> arguments,
                       std::span<const int64_t> symbols = {}) const;

  // Is the argument read at all? Of a size the symbols know it.
  bool is_read(size_t argument) const { return argument >= is_read_.size() || is_read_[argument]; }
  // Of sizes that have been given programs of their own, or might have been, a sentence each.
  std::vector<std::string> own_sizes() const;

  // Adds its ops to smelt.stats(), or takes them back (-1): it is not run after all.
  void count_ops(int64_t sign) const;

  Graph graph;
  Record record;
  std::vector<at::Tensor> captured;
  std::vector<int32_t> returned_input;
  std::vector<int32_t> same_argument;
  std::unique_ptr<const LinkedProgram> program;
  std::unique_ptr<const Preparation> preparation;  // if the program has one

 private:
  // What is prepared stands behind all other inputs, and counts on from the captured tensors.
  bool is_prepared(const Input& input) const {
    return input.source == Source::captured && static_cast<size_t>(input.index) >= captured.size();
  }
  std::vector<at::Tensor> bind(const std::vector<at::Tensor>& arguments) const;
  void check_types(const std::vector<at::Tensor>& inputs,
                   const std::vector<int64_t>& symbols) const;
  // An input that shares memory with one that the program changes, and that one.
  std::optional<std::pair<size_t, size_t>> find_alias(const std::vector<at::Tensor>& inputs) const;
  std::vector<int64_t> bind_symbols(const std::vector<at::Tensor>& inputs) const;
  std::vector<at::Tensor> execute(const LinkedProgram& linked, std::vector<at::Tensor> inputs,
                                  const RunSizes& sizes, bool* changed = nullptr) const;
  std::string describe(size_t input) const;
  bool may_specialize(const CompileOptions& options) const;
  std::shared_ptr<const LinkedProgram> compile_for(std::span<const int64_t> symbols) const;

  std::vector<size_t> written_;  // inputs that the program changes
  std::vector<bool> is_written_;
  int64_t calls_ = 0;              // nodes that no kernel computes
  int64_t on_numbers_ = 0;         // nodes that compute Python's numbers
  bool offsets_matter_ = false;    // some op addresses storage absolutely
  std::vector<bool> is_read_;      // by argument
  CompileOptions again_;           // how it is compiled for sizes that come again
  std::unique_ptr<HotSizes> hot_;  // none: there is one program for all sizes
};

// The numbers of a run behind its tensors, as a graph takes them.
void add_numbers(const RecordedGraph::Impl& graph, std::span<const c10::Scalar> numbers,
                 std::vector<at::Tensor>& arguments);

// smelt::record (include/smelt/smelt.h) with a choice of how the graph is compiled.
RecordedGraph record_as(const Function& function, const std::vector<at::Tensor>& arguments,
                        const DynamicShapes& dynamic_shapes, const CompileOptions& options);
// With the symbols of these sizes; runs are given their values. Not compiled yet.
Recorded record_sized(const Function& function, const std::vector<at::Tensor>& arguments,
                      const VaryingSizes& sizes);

}  // namespace smelt
