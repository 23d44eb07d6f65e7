// The program of a log in stages (log/stages.h): one program behind the other, each with an
// autograd node of its own.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bridge/choose_program.h"
#include "bridge/traced_program.h"
#include "compile/compile.h"
#include "log/stages.h"

namespace smelt {

class StagedProgram final : public TracedProgram {
 public:
  // Its stages are chosen as programs of their own. An Error where a checkpoint can't be
  // compiled. `plain`: the log as plain data.
  StagedProgram(const OpLog& log, const LogProgram& program, const LogProgram::Interface& interface,
                const StageStarts& starts, WantedProgram want, const CompileOptions& options);

  Kind kind() const override { return Kind::staged; }
  size_t ops() const override;
  std::string str() const override;
  std::vector<std::string> own_sizes() const override;
  std::vector<Guard> size_guards() const override;

 protected:
  RunOutcome run_compiled(const std::vector<at::Tensor>& inputs,
                          std::span<const c10::Scalar> scalars,
                          OnFailure on_failure) const override;
  bool leaves_nothing_behind() const override;

 private:
  struct Stage {
    std::shared_ptr<const TracedProgram> program;
    size_t first = 0;                     // of the log's items
    bool writes = false;                  // it changes an input
    std::vector<size_t> inputs, outputs;  // places
    std::vector<size_t> last;             // of the inputs: nobody reads them any more
    bool has_effects = false;             // an op of it may have
    std::vector<uint32_t> given_numbers;  // behind those of the program
    std::vector<uint32_t> read_numbers;   // behind its outputs
    // By input, where sizes vary: what it was compiled for, if ops that were called have made it.
    std::vector<std::optional<TensorType>> types;
  };
  std::vector<Stage> stages_;
  std::optional<Number> evaluate(uint32_t step, std::span<const c10::Scalar> scalars,
                                 std::vector<std::optional<Number>>& known) const;
  static bool fits(const Stage& stage, const std::vector<at::Tensor>& inputs,
                   std::span<const c10::Scalar> scalars);
  std::vector<at::Tensor> outputs_in(const std::vector<at::Tensor>& places) const;

  std::vector<int32_t> outputs_;  // places; -1: none
  size_t places_ = 0;             // inputs, then what the stages make
  std::vector<at::Generator> generators_;
  std::vector<NumberStep> numbers_;       // that a run reads on its way, and computes of those
  std::vector<uint32_t> wanted_numbers_;  // of these, behind the outputs
  bool writes_early_ = false;             // a stage before the last changes an input
};

}  // namespace smelt
