// A Program whose ops were looked up in PyTorch's dispatcher, ready to run on real tensors.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "aten/boxed_call.h"
#include "backend/backend.h"
#include "base/error.h"
#include "base/number.h"
#include "bridge/machine/arena_memory.h"
#include "bridge/machine/graphed_runs.h"
#include "bridge/machine/run_sizes.h"
#include "runtime/executor.h"
#include "runtime/program.h"

namespace smelt {

// A kernel found that its inputs are not what it can compute with: an index out of range, an
// integer division by 0. PyTorch's own ops say what is wrong.
class KernelFailed : public Error {
 public:
  using Error::Error;
};

// Something that the program was compiled for does not hold: a branch on the contents of a tensor,
// a number that Python could not compute. Nothing that the caller can see has been changed.
class Mispredicted : public Error {
 public:
  using Error::Error;
};

// One step, prepared. Where it calls an op, the numbers of the call are those in registers.
struct LinkedStep : BoxedCall {
  enum class Kind : uint8_t {
    call,
    kernel,
    view,
    mutator,
    write,
    set_grad,
    clear_grad,
    expect_no_grad,
    save_rng,
    restore_rng,
    number,
    item,
    expect,
    fits,
    draw
  };

  // Of a step on numbers.
  struct Operand {
    Register reg = -1;  // -1: a literal
    Number literal = false;
  };

  Kind kind = Kind::call;
  // Arguments that depend on the run's sizes, and which of RunSizes::arguments they are.
  std::vector<std::pair<size_t, size_t>> symbolic;
  std::vector<Register> targets;  // of the effect steps: registers of their tensor arguments
  std::vector<size_t> mutated;    // of a mutator: positions of the arguments it changes
  std::optional<c10::OperatorHandle> in_place_op;  // as Step has it
  // The op is not PyTorch's own: nothing says whether its result shapes depend on contents.
  bool checked = false;
  c10::IValue generator;  // of the rng steps and of a draw
  int64_t count = 0;      // of a draw
  // Of a kernel or view: sizes and strides of each result. Where they are not known they are in
  // RunSizes::values, the strides behind the sizes.
  struct Dense {
    c10::ScalarType dtype;
    c10::Device device;
    std::vector<int64_t> sizes, strides;
    size_t rank = 0;
    int32_t place = -1;  // there; -1: they are known
  };
  std::vector<Dense> made;
  // Of a view: from the first element of what it shows.
  int64_t offset = 0;
  int32_t offset_place = -1;      // in RunSizes::values; -1: it is known
  std::vector<Operand> operands;  // of the steps on numbers
  NumberOp number_op = NumberOp::add;
  bool truth = false;          // that is expected
  DType fitting = DType::f64;  // what a number has to fit
};

// A kernel of the program, ready to run.
struct LinkedKernel {
  const Backend* backend = nullptr;
  std::shared_ptr<const LoadedKernel> code;
  // Does it run elsewhere than on the host? Results are made, and it is launched, with its device
  // as the current one.
  std::optional<c10::Device> device;
  int32_t sizes = -1;  // of one on the host: where Launch::sizes is in RunSizes::values
};

// Looks on while a program runs.
class StepObserver {
 public:
  virtual ~StepObserver() = default;
  // `tensor`: what is in a register now.
  virtual void after_step(size_t index, const std::function<at::Tensor(Register)>& tensor) = 0;
};

// The steps of a run parted: those on the host, and all others.
struct PartsOfRun {
  std::vector<bool> is_host;  // by step
  // What the host's part computes and the other takes. A register may have several, one behind the
  // other.
  std::vector<Register> numbers;
  std::vector<uint32_t> given;              // those that are there before
  std::vector<std::vector<uint32_t>> made;  // by step: those that it makes
  std::vector<std::vector<uint32_t>> used;  // by step: those that it takes
};
struct PartOfRun {
  const PartsOfRun& parts;
  bool host = false;
  std::vector<Number>& values;  // of the numbers
};

class LinkedProgram {
 public:
  LinkedProgram(Program program, std::vector<c10::IValue> opaque,
                GraphUse graphs = GraphUse::never);

  const Program& program() const { return program_; }
  const std::vector<LinkedStep>& steps() const { return steps_; }
  const std::vector<c10::IValue>& opaque() const { return opaque_; }
  // The inputs in the program's order, already checked; symbol values as bound. Thread-safe.
  // `changed`, also of a run that throws: it has changed a tensor of the caller's, or called an op
  // with effects. If it has failed, or what comes behind it does, it must not be made again.
  std::vector<at::Tensor> run(std::vector<at::Tensor> inputs, std::span<const int64_t> symbols,
                              bool* changed = nullptr) const {
    return run_with(*sizes_for(symbols), std::move(inputs), changed);
  }
  std::vector<at::Tensor> run_with(const RunSizes& sizes, std::vector<at::Tensor> inputs,
                                   bool* changed = nullptr) const;
  // What its sizes come to. None of its guards may be broken where it is run.
  std::shared_ptr<const RunSizes> sizes_for(std::span<const int64_t> symbols) const {
    return sizes_.of(symbols);
  }
  // The same step by step, whether or not it could be a CUDA graph.
  std::vector<at::Tensor> run_steps(std::vector<at::Tensor> inputs,
                                    std::span<const int64_t> symbols,
                                    StepObserver* observer = nullptr,
                                    const PartOfRun* part = nullptr,
                                    bool* changed = nullptr) const {
    return run_steps_with(*sizes_for(symbols), std::move(inputs), observer, part, changed);
  }
  std::vector<at::Tensor> run_steps_with(const RunSizes& sizes, std::vector<at::Tensor> inputs,
                                         StepObserver* observer = nullptr,
                                         const PartOfRun* part = nullptr,
                                         bool* changed = nullptr) const;
  // The code of its kernels, if that was left for later: the first run makes it. KernelFailed where
  // there can be none.
  void make_code() const;
  // Nanoseconds that has taken.
  int64_t code_ns() const { return code_ns_; }
  // Of a program on CUDA: whether it is launched as a graph, and if not, why. Else empty.
  std::string launching() const { return graphs_ ? graphs_->str() : std::string(); }

  // Tests: compare every result with the type it was recorded with. Set by SMELT_CHECK_TYPES=1.
  static bool check_types;

 private:
  friend class AtenMachine;

  Program program_;
  std::vector<c10::IValue> opaque_;
  std::vector<LinkedStep> steps_;
  enum class Code : uint8_t { unmade, made, failed };
  mutable std::mutex code_mutex_;  // of whoever makes it
  mutable std::atomic<Code> code_ = Code::made;
  mutable std::atomic<int64_t> code_ns_ = 0;
  mutable std::vector<LinkedKernel> kernels_;  // not to be read before the code is made
  SizesOfRuns sizes_;
  std::vector<Register> in_place_;  // of inputs that kernels store results into
  std::unique_ptr<GraphedRuns> graphs_;
};

}  // namespace smelt
