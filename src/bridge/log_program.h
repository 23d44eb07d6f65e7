// A program made of an op log: the ops called through PyTorch's dispatcher one after the other,
// above autograd and autocast. It is always right, whatever the ops are.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "aten/boxed_call.h"
#include "aten/op_ambient.h"
#include "base/number.h"
#include "base/varying_sizes.h"
#include "bridge/autograd/tracked_inputs.h"
#include "bridge/autograd/written_versions.h"
#include "bridge/followed_function.h"
#include "bridge/run_outcome.h"
#include "capture/dispatch/shapes.h"
#include "capture/log/op_log.h"

namespace smelt {

class Recorder;

class LogProgram {
 public:
  // What the program is given and what it gives. Numbers that ops take are among `scalars`, in the
  // order that run() takes them, or among `numbers`; those wanted are outputs behind the tensors,
  // as 0-dim tensors.
  struct Interface {
    std::span<const LogValue> inputs;
    std::span<const LogValue> outputs;
    std::span<const ScalarId> scalars;
    std::span<const Number> examples;  // what the scalars are now
    std::span<const NumberStep> numbers;
    std::span<const ScalarId> wanted_numbers;
    const VaryingSizes* sizes = nullptr;  // of these inputs and scalars; nullptr: none vary
    // What a value of the log is like, with those sizes; nothing: that is not known.
    std::function<std::optional<TensorType>(LogValue)> type_of = {};
  };
  // Ops that nobody needs are left out.
  LogProgram(const OpLog& log, const Interface& interface);
  LogProgram(const OpLog& log, std::span<const LogValue> inputs, std::span<const LogValue> outputs)
      : LogProgram(log, Interface{inputs, outputs, {}, {}, {}, {}}) {}

  // Under the ambient the log started with; it is for all inputs. Thread-safe. If it fails, the
  // random generators are as they were before, unless it leaves what it has changed.
  RunOutcome attempt(std::vector<at::Tensor> inputs, std::span<const c10::Scalar> scalars,
                     OnFailure on_failure) const;
  std::vector<at::Tensor> run(std::vector<at::Tensor> inputs,
                              std::span<const c10::Scalar> scalars = {}) const {
    return attempt(std::move(inputs), scalars, OnFailure::restore).take();
  }
  // The same under a recorder, on twins, from whichever ambient. `scalars`: numbers of the
  // recording (Recorder::add_number), or plain ones, which become part of it.
  std::vector<at::Tensor> replay(std::vector<at::Tensor> twins,
                                 std::span<const c10::Scalar> scalars = {}) const;

  // A run that failed has changed nothing that the caller can see.
  bool fails_cleanly() const { return fails_cleanly_; }
  // Some op may have been entered into an autograd graph.
  bool uses_autograd() const { return uses_autograd_; }
  // By call of the log: it is needed.
  const std::vector<bool>& live() const { return live_; }
  // Some op changes a tensor in place.
  bool writes() const { return writes_; }
  // It sets gradients, or has a use of its own for all that it computes: none of its results takes
  // part in autograd.
  bool has_grads() const { return has_grads_; }
  // It runs the autograd engine.
  bool has_backward() const { return has_backward_; }
  // One of its backward passes calls hooks or custom functions.
  bool has_hooks() const { return has_hooks_; }
  // A run for which something does not hold is none: Mispredicted.
  bool expects() const { return expects_; }
  // No op takes a number that the program reads or computes itself: such are looked at, at most.
  bool computes_without_numbers() const;
  // What eager leaves the versions of inputs and outputs at (written_versions.h).
  const VersionRises& version_rises() const { return version_rises_; }
  // Inputs whose gradients are set or dropped.
  const std::vector<size_t>& grad_owners() const { return grad_owners_; }
  // Inputs whose gradients it asks for by torch.autograd.grad.
  const std::vector<size_t>& asked() const { return asked_; }
  // Its backward passes go on where inputs were computed before: to which of its other inputs, and
  // whether to leaves besides, is part of what was traced. `inputs`: those of the trace.
  void keep_reach(const std::vector<at::Tensor>& inputs);
  // As in the trace; else the program is not for these inputs.
  bool reaches_as_traced(const std::vector<at::Tensor>& inputs) const;
  // That is all it does to gradients.
  bool clears_only() const { return clears_only_; }
  // Inputs whose gradients are dropped before anything else is done.
  const std::vector<size_t>& cleared_first() const { return cleared_first_; }
  // Outputs whose gradients are kept: retain_grad().
  const std::vector<size_t>& retained() const { return retained_; }
  // Some op gives an input of the caller's other sizes, in place: it has to be for one argument alone.
  bool reshapes_inputs() const { return reshapes_inputs_; }
  size_t ops() const { return steps_.size(); }
  const std::vector<ScalarId>& scalars() const { return scalars_; }
  // Sizes that vary, of the inputs and of the scalars; and the values that a run's scalars give
  // their symbols.
  const VaryingSizes& sizes() const { return sizes_; }
  std::vector<int64_t> symbols(std::span<const c10::Scalar> scalars) const;
  // The scalars as numbers of a recording that has these symbols.
  std::vector<c10::Scalar> add_numbers(Recorder& recorder) const;
  // What the run-time scalars were when the log was made.
  const std::vector<c10::Scalar>& scalar_examples() const { return scalar_examples_; }
  const std::vector<at::Generator>& generators() const { return generators_; }
  // One line per op.
  std::string str() const;

 private:
  using Slot = BoxedCall::Slot;
  // The index is one into scalars_, and behind them numbers_.
  using NumberUse = BoxedCall::NumberUse;
  struct Step;
  // What a hook does to a gradient, or the backward of a custom function to several, under a
  // recorder.
  struct Hook {
    int32_t tensor;                       // register; -1: a function's
    int32_t function;                     // Function::id
    std::vector<int32_t> grads, results;  // registers; -1: none
    std::vector<Step> steps;
  };
  // A custom function as ops, likewise.
  struct Function {
    int32_t id;
    std::vector<int32_t> inputs, outputs;  // registers; one input for each argument, -1: no tensor
    std::vector<bool> differentiable;      // outputs
    bool materializes;
    std::vector<Step> steps;
  };
  struct Step : BoxedCall {
    std::vector<int32_t> results;                             // a register; -1: not needed
    std::vector<std::optional<c10::ScalarType>> dtypes = {};  // of the results, where known
    int32_t ambient = 0;
    size_t call = 0;      // of the log
    int32_t number = -1;  // of the number that it gives
    bool is_expectation = false;
    std::vector<std::vector<int64_t>> sizes = {};        // of its results, where contents decide
    std::optional<c10::Scalar> expected = std::nullopt;  // the number that it gives
    std::vector<bool> found = {};  // of torch.autograd.grad: the gradients that are no None
    bool registers_hook = false;
    bool is_factory = false;                 // PyTorch's: Python has it called below autograd
    bool has_effects = false;                // it is not called twice
    std::optional<KnownResults> known = {};  // where the recorder has no other way to know them
    std::vector<Hook> hooks = {};
    std::shared_ptr<const Function> function = {};
  };
  struct Constant {
    int32_t reg;
    at::Tensor tensor;
    bool shared;  // nobody changes it or gets hold of it
  };
  enum class Mode : uint8_t { run, replay };
  // What a run is about: registers, and the run-time scalars.
  struct State {
    std::vector<at::Tensor> registers;
    std::span<const c10::Scalar> scalars;
    size_t call = 0;                                     // of the log, that is being run
    std::vector<c10::Scalar> given;                      // by LoggedCall::number
    std::vector<std::optional<c10::Scalar>> numbers;     // as numbers_, where it has been asked for
    std::unordered_map<int32_t, const Hook*> backwards;  // by Function::id, while a pass runs
    std::vector<c10::intrusive_ptr<FollowedFunction>> functions;  // that were called
    bool has_effects = false;  // an op that may have effects has been called
  };
  class FunctionCall;
  struct RunValues;
  struct Saved {
    std::vector<std::pair<at::Tensor, at::Tensor>> contents;  // a tensor and what was in it
    std::vector<std::pair<at::Tensor, at::Tensor>> grads;     // a tensor and its gradient
    SavedVersions versions;  // what autograd has saved before is not outdated by a restoration
    void restore();
  };

  void make_steps(const OpLog& log, const std::vector<bool>& live,
                  std::span<const LogValue> outputs);
  // Without its results. `last`: of each tensor that it takes, that nobody reads it after this;
  // empty: not known.
  Step make_step(const OpLog& log, const LoggedCall& call, const RealCall& real,
                 const std::vector<bool>& last);
  Hook make_hook(const OpLog& log, const LogHook& hook);
  std::vector<Step> make_inner_steps(const OpLog& log, const InnerCalls& calls);
  std::shared_ptr<const Function> make_function(const OpLog& log, const LogFunction& function,
                                                size_t call);
  void make_constants(const OpLog& log, const std::vector<bool>& live,
                      std::span<const LogValue> outputs);
  int32_t number_of(ScalarId id) const;
  void note_versions(const OpLog& log, const std::vector<bool>& live,
                     std::span<const LogValue> inputs, std::span<const LogValue> outputs);
  void note_grads(const OpLog& log, const std::vector<bool>& live, std::span<const LogValue> inputs,
                  std::span<const LogValue> outputs);
  c10::Scalar evaluate(State& state, uint32_t number) const;
  c10::Scalar operand(State& state, const NumberStep::Operand& operand) const;
  c10::Scalar scalar(State& state, uint32_t index) const;
  void check(const Step& step, State& state) const;
  void read_number(const Step& step, State& state, const at::Tensor& tensor,
                   std::vector<c10::IValue>& stack) const;
  State begin(std::vector<at::Tensor> inputs, std::span<const c10::Scalar> scalars,
              Mode mode) const;
  void find_saved(const OpLog& log, const std::vector<bool>& live,
                  std::span<const LogValue> inputs);
  Saved save(const std::vector<at::Tensor>& inputs) const;
  int32_t reg(LogValue value);
  void refuse_ops_on_numbers() const;
  void print_argument(std::ostream& out, const Step& step, size_t index) const;
  std::vector<NumberUse> number_uses(const LoggedCall& call) const;
  void steps(State& state, OpAmbientScope* ambient) const;
  void begin_effects(State& state) const;
  void execute(const Step& step, State& state, std::vector<c10::IValue>& stack) const;
  void call(const Step& step, State& state, std::vector<c10::IValue>& stack) const;
  static void check_sizes(const Step& step, const std::vector<c10::IValue>& stack);
  ReachBehind reach(const std::vector<at::Tensor>& inputs) const;
  void check_found(const Step& step, const State& state,
                   const std::vector<c10::IValue>& stack) const;
  void run_inner(const std::vector<Step>& steps, State& state) const;
  std::vector<at::Tensor> run_hook(const Hook& hook, State& state,
                                   const std::vector<at::Tensor>& grads) const;
  std::vector<at::Tensor> call_function(const Function& function, State& state) const;
  std::vector<at::Tensor> start(std::vector<at::Tensor> inputs, Mode mode) const;
  std::vector<at::Tensor> results(State& state) const;
  bool has_changed_nothing(const State& state) const;
  RunOutcome describe_failure(const State& state) const;

  std::vector<Step> steps_;
  std::vector<bool> live_;
  std::vector<ScalarId> scalars_;
  std::vector<NumberStep> numbers_;
  std::unordered_map<ScalarId, int32_t> number_of_;     // into numbers_, while the program is made
  std::unordered_map<int32_t, size_t> number_of_item_;  // likewise, by NumberStep::item
  std::vector<uint32_t> wanted_numbers_;                // into numbers_
  std::vector<uint32_t> needed_numbers_;      // likewise, wanted or taken by an op or a check
  size_t given_ = 0;                          // numbers that ops give
  std::vector<c10::Scalar> scalar_examples_;  // as scalars_
  VaryingSizes sizes_;
  std::vector<Constant> constants_;
  std::vector<int32_t> inputs_;   // registers
  std::vector<int32_t> outputs_;  // registers; -1: undefined
  std::vector<OpAmbient> ambients_;
  std::vector<int32_t> register_of_;  // by log value, while the program is made
  std::vector<std::string> input_texts_;
  std::vector<std::vector<std::string>> result_texts_;
  size_t registers_ = 0;
  std::vector<at::Generator> generators_;  // that some op draws from
  std::vector<size_t> saved_;              // inputs that are put back if the run fails
  std::vector<size_t> grad_owners_;        // inputs whose gradients are set
  std::vector<size_t> cleared_first_;
  std::vector<size_t> asked_;
  bool adds_to_gradients_ = false;  // by a backward pass
  std::optional<ReachBehind> reach_;
  std::vector<size_t> retained_;
  VersionRises version_rises_;
  bool one_ambient_ = true;  // all ops run under the one the log started with
  bool fails_cleanly_ = true;
  bool reshapes_inputs_ = false;
  size_t first_change_ = SIZE_MAX;  // the first call that changes something which stays changed
  bool uses_autograd_ = false;
  bool writes_ = false;
  bool has_grads_ = false;
  bool has_backward_ = false;
  bool has_hooks_ = false;
  bool clears_only_ = true;
  bool expects_ = false;
};

}  // namespace smelt
