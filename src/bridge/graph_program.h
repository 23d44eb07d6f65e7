// The program of a traced piece of code: its log run op by op, and where there is no autograd to do
// also the functional graph that the recorder makes of the log.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "bridge/log_program.h"
#include "smelt/smelt.h"

namespace smelt {

class GraphProgram {
 public:
  enum class Want : uint8_t {
    log,      // op by op
    graph,    // a graph if the recorder can make one
    fastest,  // whichever is faster to run
  };
  // Counts as a graph in smelt.stats().
  GraphProgram(const OpLog& log, std::span<const LogValue> inputs,
               std::span<const LogValue> outputs, Want want);

  // The inputs are of the types they were traced with. Thread-safe.
  std::vector<at::Tensor> run(std::vector<at::Tensor> inputs) const;

  const LogProgram& log() const { return log_; }
  // Run in the place of the log.
  const std::optional<RecordedGraph>& graph() const { return graph_; }
  // Why there is none; empty if there is, or if it was not asked for.
  const std::string& refusal() const { return refusal_; }

  bool fails_cleanly() const { return graph_ || log_.fails_cleanly(); }
  size_t ops() const { return graph_ ? graph_->size() : log_.ops(); }
  std::string str() const;

 private:
  Decision can_record(const OpLog& log, std::span<const LogValue> inputs,
                      std::span<const LogValue> outputs) const;
  void record(const OpLog& log, std::span<const LogValue> inputs);

  LogProgram log_;
  std::optional<RecordedGraph> graph_;
  std::string refusal_;
};

}  // namespace smelt
