// The program of a traced piece of code. Each has the log, run op by op, to fall back on; its
// leaves run something quicker in the log's place: a graph (graph_program.h), a forward and a
// backward graph (training_program.h), several programs one behind the other (staged_program.h).
// choose_program.h says which it is.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bridge/log_program.h"
#include "bridge/run_outcome.h"

namespace smelt {

class TracedProgram {
 public:
  enum class Kind : uint8_t { op_by_op, graph, training, staged };

  explicit TracedProgram(LogProgram log) : log_(std::move(log)) {}
  virtual ~TracedProgram() = default;
  TracedProgram(const TracedProgram&) = delete;
  TracedProgram& operator=(const TracedProgram&) = delete;

  // The inputs are of the types they were traced with; it is for all of these. Thread-safe.
  RunOutcome attempt(std::vector<at::Tensor> inputs, std::span<const c10::Scalar> scalars,
                     OnFailure on_failure) const;
  std::vector<at::Tensor> run(std::vector<at::Tensor> inputs,
                              std::span<const c10::Scalar> scalars = {}) const {
    return attempt(std::move(inputs), scalars, OnFailure::restore).take();
  }

  virtual Kind kind() const = 0;
  const LogProgram& log() const { return log_; }
  // Why it is run op by op; empty if it is not, or if nothing else was asked for.
  virtual const std::string& refusal() const;
  // It is run op by op although more was asked for, and its results take part in autograd.
  bool is_left_to_autograd() const;

  // A run that failed has changed nothing that the caller can see. Asked where it was run.
  bool fails_cleanly() const;
  // Hooks on saved tensors see what its ops save, if it is run here and now.
  bool is_watched() const;
  virtual size_t ops() const = 0;
  virtual std::string str() const = 0;
  // What it relies on about sizes that vary.
  virtual std::vector<Guard> size_guards() const { return {}; }
  // Of sizes that have been given programs of their own, or might have been, a sentence each.
  virtual std::vector<std::string> own_sizes() const { return {}; }

 protected:
  // What is run in the place of the log.
  virtual RunOutcome run_compiled(const std::vector<at::Tensor>& inputs,
                                  std::span<const c10::Scalar> scalars,
                                  OnFailure on_failure) const = 0;
  static RunOutcome run_compiled_of(const TracedProgram& program,
                                    const std::vector<at::Tensor>& inputs,
                                    std::span<const c10::Scalar> scalars, OnFailure on_failure) {
    return program.run_compiled(inputs, scalars, on_failure);
  }
  // fails_cleanly(), as long as nobody watches.
  virtual bool leaves_nothing_behind() const { return true; }

  const LogProgram log_;
};

class OpByOpProgram final : public TracedProgram {
 public:
  OpByOpProgram(LogProgram log, std::string refusal)
      : TracedProgram(std::move(log)), refusal_(std::move(refusal)) {}

  Kind kind() const override { return Kind::op_by_op; }
  const std::string& refusal() const override { return refusal_; }
  size_t ops() const override { return log_.ops(); }
  std::string str() const override;

 protected:
  RunOutcome run_compiled(const std::vector<at::Tensor>&, std::span<const c10::Scalar>,
                          OnFailure) const override {
    return {};
  }
  bool leaves_nothing_behind() const override { return log_.fails_cleanly(); }

 private:
  const std::string refusal_;
};

}  // namespace smelt
