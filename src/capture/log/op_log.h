// The op log: while it is switched on for a thread, every op that the thread asks of the dispatcher
// is computed for real and written down as plain data (log/call_log.h), at the top, above autocast
// and autograd. What an op calls in its turn is not written down. Running the ops again in the same order, on the same kind of
// inputs and under the same ambient, gives what PyTorch itself gives: values, views, in-place
// changes, autograd graph.
//
// Tensors are known by their TensorImpl. The log holds those weakly: an address is not used twice,
// and memory is freed as early as in eager.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/util/intrusive_ptr.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "aten/op_ambient.h"
#include "aten/op_info.h"
#include "aten/stand_ins.h"
#include "base/number.h"
#include "capture/log/ambient_list.h"
#include "capture/log/autograd_nodes.h"
#include "capture/log/grad_ops.h"
#include "capture/log/memory_numbers.h"
#include "capture/log/opaque_call.h"
#include "capture/log/real_parts.h"
#include "log/call_log.h"

namespace smelt {

class OpLog {
 public:
  OpLog();
  ~OpLog();
  OpLog(const OpLog&) = delete;
  OpLog& operator=(const OpLog&) = delete;

  // The log that is switched on for this thread, or nullptr.
  static OpLog* current();
  void resume();
  void pause();
  bool is_on() const { return on_; }

  // A tensor that existed before; the same value for the same tensor.
  LogValue add_input(const at::Tensor& tensor);
  // -1 if the log never saw it.
  LogValue find(const at::Tensor& tensor) const;
  // Are the tensor's version and requires_grad what the last op on it left? Trouble if not: it was
  // changed out of the log's sight, by requires_grad_() or a custom autograd function for instance.
  bool check_state(LogValue value, const at::Tensor& tensor);
  // The same for all inputs.
  void check_inputs();

  // Whether `.item()` is an op like others, whose result is a number of the program's. Else
  // trouble.
  void keep_numbers(bool keep) { keeps_numbers_ = keep; }
  int32_t numbers() const { return numbers_; }

  // An op is being computed that call() was asked for.
  bool is_in_op() const { return depth_ > 0; }
  // Asked before what depends on contents is taken for what it will be in each run: the size of a
  // result, a number that C code reads (guesses.cpp). Without one nothing is guessed.
  void set_guess(std::function<bool()> may_guess) { may_guess_ = std::move(may_guess); }
  // Asked before: whether it may be another one in each run, as a number that the program reads.
  void set_count(std::function<bool()> may_count) { may_count_ = std::move(may_count); }
  // The number, which an op gave, is a size of what later ops make.
  void count_number(int32_t number);
  // The numbers from `first` on have been read by C code: each run expects them. False: they can't
  // be guessed.
  bool expect_numbers(int32_t first);
  // Each run expects sizes that contents decide and that are none of these numbers: nobody has
  // followed them.
  void expect_sizes_but(std::span<const NumberStep> numbers);

  // Those that are about from now on, or nullptr.
  void set_stand_ins(StandIns* stand_ins) { stand_ins_ = stand_ins; }

  // Computes the op and writes it down. For the top kernel; `below`: its keys without those above.
  void call(const OpInfo& op, c10::DispatchKeySet below, std::vector<c10::IValue>* stack);
  void give_up(OpTrouble::Kind kind, std::string detail);
  // Code that is kept as one call (opaque_call.cpp). begin_call() looks up its tensors before it
  // is made; end_call() puts it in the place of the ops behind `position`. Nothing or false:
  // trouble.
  std::optional<OpenCall> begin_call(c10::intrusive_ptr<OpaqueCall> code,
                                     const std::vector<at::Tensor>& tensors);
  bool end_call(OpenCall call, size_t position, const std::vector<at::Tensor>& results);
  // The same for a custom function, whose ops are kept with it if they can be: `inputs`, one for
  // each of its arguments, undefined where that is no tensor; the others as in LogFunction.
  struct Called {
    NodePtr node;
    std::vector<at::Tensor> inputs;
    bool materializes = true;
  };
  bool end_function(OpenCall call, size_t position, const std::vector<at::Tensor>& results,
                    const Called& called);
  // The call whose ops make up the function with this node; nothing if there is none.
  std::optional<size_t> function_of(const torch::autograd::Node* node) const;
  // `saved`: what its backward finds in saved_tensors.
  void meet_outputs(size_t call, const std::vector<at::Tensor>& saved);
  // Gradients (grad_ops.cpp). set_grad(): the caller has set it. begin_backward() looks up the
  // tensors before the pass is made, end_backward() finds the gradients. False or nothing: trouble.
  bool set_grad(const at::Tensor& self, const at::Tensor& grad);
  // `only`: the leaves, if not all.
  std::optional<OpenCall> begin_backward(const std::vector<at::Tensor>& outputs,
                                         const std::vector<at::Tensor>& seeds,
                                         const std::vector<at::Tensor>& only, bool keep_graph,
                                         bool create_graph);
  void end_backward(OpenCall call);
  // torch.autograd.grad: the same, with gradients as results.
  std::optional<OpenCall> begin_grad(const std::vector<at::Tensor>& outputs,
                                     const std::vector<at::Tensor>& seeds,
                                     const std::vector<at::Tensor>& inputs, bool keep_graph,
                                     bool create_graph, bool allow_unused);
  bool end_grad(OpenCall call, const std::vector<at::Tensor>& grads);
  // The ops of backward passes are ops like others from now on, or no more: those of passes that a
  // transform makes, whose levels have the graph.
  void follow_pass(bool follows) { follows_pass_ = follows; }
  // No size varies from run to run any more.
  void fix_sizes() { has_fixed_sizes_ = true; }
  // A function transform takes the op apart. Its levels compute with sizes as they are now.
  void pass_transform(const OpInfo& op) {
    if (!has_fixed_sizes_) give_up(OpTrouble::Kind::transform, op.name.str());
  }
  // requires_grad_() has been called on a result of the log.
  bool require_grad(const at::Tensor& tensor, bool value);
  // retain_grad(), likewise. False: it is none of these. retained(): those that a pass comes to.
  bool retain_grad(const at::Tensor& tensor);
  std::vector<at::Tensor> retained(const std::vector<at::Tensor>& outputs) const;
  // `data` is what `.data` of the tensor gave.
  bool take_data(const at::Tensor& tensor, const at::Tensor& data);
  // Hooks (pass_hooks.cpp). The last call has registered one on the tensor. begin_hook(): the pass
  // that has begun calls one with the gradient of a tensor, or the backward of a function with
  // several; what follows are its ops, until end_hook() with what it gave, or abandon_hook().
  void note_registration(const at::Tensor& tensor);
  LogValue registered_on(const torch::autograd::Node* node, uint32_t output) const {
    return nodes_.hooked(node, output);
  }
  bool begin_hook(LogHook hook, const std::vector<at::Tensor>& grads);
  bool end_hook(const std::vector<at::Tensor>& results);
  void abandon_hook();
  // A backward pass has gone over what the tensor was computed by, and nobody can a second time.
  bool is_consumed(LogValue value) const;
  // The log holds for runs in which the number is true, or is not.
  void expect(ScalarId number, const c10::Scalar& seen, bool truth);

  // Forgets the ops behind `position` and the values made by them. Numbers are not used again.
  void rewind(size_t position);
  // The ops from here to end_recomputed() are a piece of which nothing but its inputs is kept for
  // the backward. `keeps_random_state`: what is drawn in it is drawn again then. Trouble if it does
  // what eager would do a second time.
  void begin_recomputed();
  void end_recomputed(bool keeps_random_state);
  // Some op so far may have effects that no one sees: what runs it can't start over.
  bool has_effects() const { return first_effect_ < plain_.calls.size(); }
  // One was called when the log had so many calls, and has failed since; none: SIZE_MAX.
  size_t failed_effect() const { return failed_effect_; }
  bool has_trouble() const { return trouble_.has_value(); }
  std::optional<OpTrouble> take_trouble() { return std::exchange(trouble_, std::nullopt); }

  // The ops from `first` up to `last` as a log of their own, to which nothing is added. `given`:
  // what they take of the ops before, inputs of that log.
  std::unique_ptr<const OpLog> part(size_t first, size_t last,
                                    const std::vector<LogValue>& given) const;

  const CallLog& plain() const { return plain_; }
  // What is no data, by call and by value.
  const std::vector<RealCall>& real_calls() const { return real_calls_; }
  const std::vector<RealTensor>& real_tensors() const { return real_tensors_; }
  const std::vector<OpAmbient>& ambients() const { return ambients_.all(); }
  bool is_input_memory(int32_t memory) const { return memory_.is_input(memory); }
  // Does the call change memory of an input?
  bool changes_input(const LoggedCall& call) const;
  // The tensor behind a value; undefined if nobody holds it any more.
  // Its sizes or strides have been changed in place at some time.
  bool is_resized(LogValue value) const { return real_tensors_[value].resized; }
  at::Tensor tensor(LogValue value) const { return at::Tensor(real_tensors_[value].impl.lock()); }

 private:
  template <class Part>
  void keep_account(const Part& part);
  bool take_call(OpenCall& call, std::vector<c10::IValue>& stack, size_t first, bool* dynamic);
  void take_results(OpenCall call, const std::vector<c10::IValue>& stack, size_t first,
                    bool dynamic);
  bool follow(const OpInfo& op, const std::vector<c10::IValue>& stack, size_t first);
  OpenCall open(const OpInfo& op);
  void close(OpenCall call);
  InnerCalls cut(size_t first) const;
  bool take_argument(OpenCall& call, const c10::IValue& value);
  bool take_arguments(OpenCall& call, std::initializer_list<c10::IValue> values);
  std::optional<Arg> take_tensor(const OpInfo& op, const at::Tensor& tensor);
  bool may_decide(const OpenCall& call) const;
  bool guess_sizes(const OpenCall& call);
  bool count_sizes(const OpenCall& call);
  void read_count();
  void forget_results_behind(size_t position);
  bool keep_results(LoggedCall& call, const std::vector<c10::IValue>& stack, size_t first);
  bool take_zeros(OpenCall& open, const std::vector<c10::IValue>& stack, size_t first);
  void note_writes(OpenCall& call) const;
  void read_written(LoggedCall& call);
  void note_sizes(LogValue value, const at::Tensor& tensor);
  bool is_repeatable(const LogHook& hook, LogValue first);
  std::shared_ptr<LogFunction> fold(size_t position, const std::vector<at::Tensor>& results,
                                    const Called& called);
  void take_hooks(OpenCall& call);
  bool knows_retained(const std::vector<NodePtr>& nodes, bool may);
  LogValue add_value(const at::Tensor& tensor, LoggedValue::Kind kind);
  void read_state(LogValue value, const at::Tensor& tensor);
  int32_t ambient();
  void note_effects(const LoggedCall& call);

  CallLog plain_;
  std::vector<RealCall> real_calls_;
  std::vector<RealTensor> real_tensors_;
  std::unordered_map<c10::TensorImpl*, LogValue> by_impl_;
  MemoryNumbers memory_;
  std::vector<LogValue> inputs_;
  AmbientList ambients_;
  std::optional<OpTrouble> trouble_;
  AutogradNodes nodes_;
  struct OpenHook {
    LogHook hook;
    size_t position;                                            // of its first op
    LogValue first;                                             // of the values that are its own
    std::vector<std::pair<c10::TensorImpl*, LogValue>> hidden;  // that stand for the same tensors
  };
  std::optional<OpenHook> open_hook_;
  std::vector<LogHook> hooks_;  // of the pass at hand
  struct Inner {
    LogValue value;
    size_t call;  // of the function
  };
  std::unordered_map<c10::TensorImpl*, Inner> inner_;  // as by_impl_, what functions keep
  std::vector<at::Tensor> examples_;                   // of what a part is given
  std::vector<at::Tensor> unpacked_;                   // outputs as their functions have saved them
  int recomputed_depth_ = 0;
  int32_t recomputed_pieces_ = 0;
  size_t recomputed_from_ = 0;      // the first call of the piece at hand
  size_t first_effect_ = SIZE_MAX;  // the first call that has effects
  size_t failed_effect_ = SIZE_MAX;
  int32_t numbers_ = 0;
  bool keeps_numbers_ = false;
  bool follows_pass_ = false;
  bool has_fixed_sizes_ = false;
  std::function<bool()> may_count_;
  std::function<bool()> may_guess_;
  StandIns* stand_ins_ = nullptr;
  OpLog* outer_ = nullptr;
  int depth_ = 0;  // of calls in each other
  bool on_ = false;
  bool was_included_ = false;
};

}  // namespace smelt
