// The recorder: while its scope is open on a thread, every op the dispatcher is asked for becomes a
// node of a Graph, and nothing is computed. Real tensors that the region touches become inputs.
//
// An op passes through: top kernel (real tensors replaced by their recording twins, factories
// written down)
// -> autocast -> autograd -> functionalization (PyTorch's own: views and in-place code become
// functional)
// -> record kernel (result types, node). See keys.h for the two keys and kernels.cpp for the
// kernels.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "aten/number_node.h"
#include "aten/op_info.h"
#include "base/error.h"
#include "base/number.h"
#include "base/varying_sizes.h"
#include "capture/dispatch/recording_tensor.h"
#include "capture/dispatch/rng.h"
#include "capture/dispatch/shapes.h"
#include "graph/graph.h"
#include "graph/numbers.h"

namespace smelt {

// The dimensions of an argument that stay symbolic, with the names of their symbols: equal names,
// equal sizes.
using DynamicDims = std::map<int, std::string>;

struct RecorderOptions {
  // Called when a real tensor got its twin; the Python side puts the twin behind the user's own
  // object.
  std::function<void(const at::Tensor& real, const at::Tensor& twin)> on_lift;
  // The user's line, for guards and messages.
  std::function<std::string()> where;
  // The symbolic number behind a 0-dim tensor that PyTorch's Python binding made of one (x * n with
  // n = x.shape[0]); nothing if it is a plain number. The tensor itself holds a made-up value.
  std::function<std::optional<at::Scalar>(const at::Tensor& tensor)> number;
  // Generators that existed before the region, so that drawing from them goes on from call to call.
  std::vector<at::Generator> generators;
  // Whoever runs the graph has seen to it that gradients are there, or not, as in the recording.
  bool grads_are_known = false;
  // Inputs that may have a gradient at the start which the recording knows nothing of: one that
  // ends without any is cleared.
  std::vector<size_t> grad_owners;
  // Symbols that are there from the start, without what is relied on about them.
  const SymbolTable* symbols = nullptr;
  // What is asked for are sizes alone: random generators are left as they are.
  bool only_sizes = false;
  // All ops of the graph will be called: no kernel reads a tensor's memory.
  bool only_calls = false;
  // Tests: throw at that op.
  int64_t fail_at = -1;
};

// A finished recording: the graph and what it refers to.
struct Recorded {
  Graph graph;
  std::vector<at::Tensor> captured;  // what Source::captured counts
  std::vector<c10::IValue> opaque;   // what Opaque arguments count
  // The tensor returned as it is (the caller's very tensor), per output: its input, or -1.
  std::vector<int32_t> returned_input;
  // Per argument: the earlier argument that was the very same tensor, or -1.
  std::vector<int32_t> same_argument;
};

// The strides of a tensor whose sizes vary, as expressions of them: the densely packed dimensions,
// innermost first, count up; the others are what they are.
Sizes symbolic_strides(const Sizes& sizes, at::IntArrayRef strides, const SymbolTable& symbols);

class Recorder final : public NumberRecording {
 public:
  explicit Recorder(RecorderOptions options);
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  uint64_t id() const override { return id_; }
  // The recorder whose scope is open on this thread (the engine's device threads included), or
  // nullptr.
  static Recorder* current();

  // -- before the region runs (and while its scope is open)
  // The next tensor argument of the region; its twin.
  at::Tensor add_argument(const at::Tensor& real, const DynamicDims& dynamic = {});
  // The same with dimensions of these sizes, in terms of the symbols that are there.
  at::Tensor add_sized_argument(const at::Tensor& real, const SymbolicDims& dims);
  // The next argument is a number, which a run gets as a 0-dim tensor of f64, i64 or b8. `example`:
  // what it is now. The Scalar that is returned stands for it in calls of ops.
  at::Scalar add_number(const at::Scalar& example);
  // A size that varies, which is `hint` now.
  Size add_symbol(int64_t hint) { return symbols_->add(hint); }
  // A size as a number that ops take.
  at::Scalar size_as_number(const Size& size) const;

  // -- numbers that are known only when the graph runs; Scalars may be such ones or plain
  // The element of a tensor that has one. `example`: what it is now, if that is known.
  at::Scalar item(const at::Tensor& tensor, const std::optional<at::Scalar>& example = {});
  // Python's arithmetic; `b` does not count for an op of one operand.
  at::Scalar compute(NumberOp op, const at::Scalar& a, const at::Scalar& b) override;
  // The recording holds for runs in which the number is true, or is not.
  void expect(const at::Scalar& number, bool truth) override;
  // The number where an op takes a tensor: a 0-dim one that counts as a number.
  at::Tensor wrapped(const at::Scalar& number);
  // The number as a tensor of f64, i64 or b8 like any other, to be returned.
  at::Tensor as_tensor(const at::Scalar& number);

  // -- what the kernels ask for
  bool only_calls() const { return options_.only_calls; }
  // The twin of a real tensor: an input of the graph, made on first sight. Refuses what has no twin
  // (sparse, quantized, subclasses with __torch_dispatch__).
  at::Tensor twin_of(const at::Tensor& real);
  bool is_rng_state(const at::Tensor& real) const { return rng_.is_state(real); }
  // The functional tensor of a recording tensor that PyTorch handed out without one
  // (torch.tensor(twin) does): always the same for the same tensor.
  at::Tensor wrapper_of(const at::Tensor& recording);
  // A tensor that came into being inside the region with known contents.
  at::Tensor constant(const at::Tensor& real);
  // Writes a call down and replaces the arguments on the stack by the results. Record-level tensors
  // only.
  void record(const OpInfo& op, std::vector<c10::IValue>* stack);
  // Gives up on the region: a RecordError whose message says which op and what to do.
  [[noreturn]] void refuse(const std::string& reason) override;
  // The same without the exception, for a refusal found out afterwards.
  void give_up(const std::string& reason);
  // Throws again if the region was given up before (code in it may have caught the exception).
  void check_not_refused();
  const std::optional<std::string>& refusal() const { return refusal_; }
  // What is recorded was run for real before, so that each op is one that eager computes.
  bool is_replay() const { return is_replay_; }
  void begin_replay() { is_replay_ = true; }
  // An op in place for which eager raises an error. The region can't go on, since the recording
  // tensors already carry its result.
  [[noreturn]] void fail_in_place(const std::string& message);
  // What the op that is called next had as results then; nullptr: not known.
  void set_known_results(const KnownResults* known) { known_results_ = known; }
  // Changes done by ops that do not announce them: the position of the argument and its new value.
  // Taken by the top kernel after the op.
  std::vector<std::pair<int, at::Tensor>> take_silent_writes() {
    return std::exchange(silent_writes_, {});
  }
  // How many casts were written down so far and between what the last one was, for the checks of
  // in-place ops.
  int64_t casts() const { return casts_; }
  const std::optional<std::pair<DType, DType>>& last_cast() const { return last_cast_; }
  // The op that the code of the region has called last, for messages.
  void enter(OpName op) { op_ = op; }
  std::string last_op() const override { return op_ == OpName() ? "the function" : op_.str(); }
  const SymbolTable& symbols() const { return *symbols_; }
  SymbolTable& symbols() { return *symbols_; }
  // The number that a 0-dim tensor stands for, symbolic ones included.
  at::Scalar number_in(const at::Tensor& wrapped) const;

  // -- after the region ran
  // Puts the generators' states back and lets go of the callbacks. The scope calls it when it ends.
  void close() noexcept;
  Recorded finish(const std::vector<at::Tensor>& outputs);

  // The real tensor of an input twin of whichever recording, undefined if it is none. Other threads
  // may meet such twins, and still hold one when the recording has ended.
  static at::Tensor real_of_twin(const at::Tensor& twin);

  // -- for the parts of the recorder itself (rng.cpp, finish.cpp)
  ValueId value_of(const at::Tensor& tensor) const;
  ValueId value_of(const RecordedNumber& number);
  // Of a functional tensor or one without a wrapper; brings it up to date.
  ValueId current_value(const at::Tensor& tensor) const;
  // What a number is while the program is written down, if that is known.
  std::optional<at::Scalar> example_of(ValueId number) const;
  NodeId add_node(OpName op, std::vector<Arg> args,
                  std::span<const std::optional<TensorType>> types, Traits traits);
  ValueId add_constant(const at::Tensor& real);
  at::Tensor make_tensor(ValueId value) const;
  ValueId result_of(NodeId node, int index = 0) const { return graph_.nodes[node].results[index]; }
  // How a node names a generator: its device for a default one, else an opaque.
  Arg generator_arg(const at::Generator& generator);

 private:
  friend class Finisher;

  struct LiftedInput {
    at::Tensor real;
    at::Tensor twin;
    c10::StorageImpl* twin_storage = nullptr;  // as at the start: a change means .data= or set_()
    at::Tensor twin_grad;                      // the twin of real.grad at the start
    bool is_leaf = true;
  };

  at::Tensor add_argument_of(const at::Tensor& real, const std::function<SymbolicDims()>& dims);
  at::Tensor lift(const at::Tensor& real, Source source, int32_t index, const SymbolicDims& dims);
  SymbolicDims named_dims(const at::Tensor& real, const DynamicDims& dynamic);
  TensorType input_type(const at::Tensor& real, const SymbolicDims& dims);
  void copy_hooks(const at::Tensor& real, const at::Tensor& twin);
  Call make_call(const OpInfo& op, const std::vector<c10::IValue>& stack,
                 std::vector<ValueId>& values);
  std::vector<Result> infer(const Call& call);
  void copy_silently_written(const OpInfo& op, Call& call, std::vector<ValueId>& values);
  void copy_argument(Call& call, std::vector<ValueId>& values, int position);
  struct NumberOperand {
    Arg arg;
    numbers::Operand type;
    std::optional<Number> example;
  };
  NumberOperand operand_of(const at::Scalar& scalar);
  at::Scalar scalar_of(ValueId value, std::optional<Number> example);
  at::Tensor number_tensor(ValueId value);
  void expect_fitting(ValueId number, DType dtype);
  void expect_fitting(const Call& call, const std::vector<ValueId>& values,
                      std::span<const std::optional<TensorType>> results);
  void push_results(const std::vector<Result>& results, const std::vector<ValueId>& values,
                    std::vector<c10::IValue>* stack);

  const uint64_t id_;
  RecorderOptions options_;
  SymbolsPtr symbols_;
  std::map<std::string, Size> named_symbols_;
  Graph graph_;
  std::vector<at::Tensor> captured_;
  std::vector<c10::IValue> opaque_;
  std::vector<int32_t> same_argument_;  // one per argument so far
  std::vector<LiftedInput> inputs_;     // as graph_.inputs
  std::unordered_map<c10::TensorImpl*, int32_t> input_of_real_;
  std::unordered_map<c10::TensorImpl*, int32_t> input_of_twin_;
  std::unordered_map<c10::TensorImpl*, ValueId> constants_;
  std::unordered_map<c10::TensorImpl*, at::Tensor> wrappers_;
  std::vector<at::Tensor> kept_;  // keeps the keys of constants_ and wrappers_ alive
  std::unordered_map<ValueId, Number> examples_;            // of numbers
  std::unordered_map<ValueId, at::Tensor> number_tensors_;  // that stand for numbers
  // Likewise, for sizes where ops take tensors.
  std::unordered_map<c10::TensorImpl*, at::Scalar> size_tensors_;
  std::set<std::pair<ValueId, bool>> expected_;
  std::set<std::pair<ValueId, DType>> fitting_;
  RngTracker rng_;
  OpName op_;
  std::optional<std::string> refusal_;
  bool broken_ = false;  // an op failed half-way: any further op is a refusal
  std::vector<std::pair<int, at::Tensor>> silent_writes_;
  const KnownResults* known_results_ = nullptr;
  bool is_replay_ = false;
  int64_t casts_ = 0;
  std::optional<std::pair<DType, DType>> last_cast_;  // from, to
  int64_t recorded_ops_ = 0;
  mutable std::recursive_mutex mutex_;  // the engine's device threads record too
};

// How an Error reaches code that runs outside of a recording and touches a tensor of one. It is
// thrown; the Python side has it raised as its own class.
void set_raise(void (*raise)(const std::string& message));

// Turns a recorder on for this thread and everything the autograd engine runs for it, and off
// again, also when an exception passes.
class RecordingScope {
 public:
  explicit RecordingScope(std::shared_ptr<Recorder> recorder);
  // For a while: it can be turned on again. Its twins require no gradients, so that autocast keeps
  // none of their casts.
  struct Part {};
  RecordingScope(std::shared_ptr<Recorder> recorder, Part);
  ~RecordingScope();
  RecordingScope(const RecordingScope&) = delete;
  RecordingScope& operator=(const RecordingScope&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
  const bool is_part_ = false;
};

}  // namespace smelt
