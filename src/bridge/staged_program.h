// The program of a log in stages (log/stages.h): one program behind the other, each with an
// autograd node of its own.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bridge/log_program.h"
#include "compile/compile.h"
#include "log/stages.h"

namespace smelt {

class GraphProgram;

class StagedProgram {
 public:
  // As GraphProgram, whose kind its stages are. `plain`: the log as plain data.
  StagedProgram(const OpLog& log, const CallLog& plain, const std::vector<bool>& live,
                const LogProgram::Interface& interface, const StageStarts& starts, bool interpreted,
                const CompileOptions& options);
  ~StagedProgram();

  std::vector<at::Tensor> run(std::vector<at::Tensor> inputs, std::span<const c10::Scalar> scalars,
                              RunFailure* failure = nullptr) const;

  bool fails_cleanly() const;
  size_t size() const { return stages_.size(); }
  size_t ops() const;
  std::string str() const;

 private:
  struct Stage {
    std::unique_ptr<const GraphProgram> program;
    size_t first = 0;                     // of the log's items
    bool writes = false;                  // it changes an input
    std::vector<size_t> inputs, outputs;  // places
    std::vector<size_t> last;             // of the inputs: nobody reads them any more
    bool has_effects = false;             // an op of it may have
  };
  std::vector<Stage> stages_;
  std::vector<at::Tensor> outputs_in(const std::vector<at::Tensor>& places) const;

  std::vector<int32_t> outputs_;  // places; -1: none
  size_t places_ = 0;             // inputs, then what the stages make
  std::vector<at::Generator> generators_;
  bool writes_early_ = false;  // a stage before the last changes an input
};

}  // namespace smelt
