// The op log: while it is switched on for a thread, every op that the thread asks of the dispatcher
// is computed for real and written down, at the top, above autocast and autograd. What an op calls
// in its turn is not written down. Running the ops again in the same order, on the same kind of
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
#include <string>
#include <unordered_map>
#include <vector>

#include "aten/log_facts.h"
#include "aten/op_ambient.h"
#include "aten/op_info.h"
#include "aten/stand_ins.h"
#include "capture/log/grad_ops.h"
#include "capture/log/log_items.h"
#include "capture/log/opaque_call.h"

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
  // The numbers from `first` on have been read by C code: each run expects them. False: they can't
  // be guessed.
  bool expect_numbers(int32_t first);
  // Computed from whole numbers and truth values alone, none of them drawn: most often what it was.
  bool is_steady(LogValue value) const;
  bool is_steady_number(int32_t number) const;

  // Those that are about from now on, or nullptr.
  void set_stand_ins(StandIns* stand_ins) { stand_ins_ = stand_ins; }

  // Computes the op and writes it down. For the top kernel; `below`: its keys without those above.
  void call(const OpInfo& op, c10::DispatchKeySet below, std::vector<c10::IValue>* stack);
  void give_up(OpTrouble::Kind kind, std::string detail);
  // A call that is kept as one item (opaque_call.cpp). begin_call() looks up its tensors before it
  // is made; end_call() puts it in the place of the ops behind `position`. Nothing or false:
  // trouble.
  std::optional<LogItem> begin_call(c10::intrusive_ptr<OpaqueCall> call,
                                    const std::vector<at::Tensor>& tensors);
  bool end_call(LogItem item, size_t position, const std::vector<at::Tensor>& results);
  // The same for a custom function, whose ops are kept with it if they can be: `inputs`, one for
  // each of its arguments, undefined where that is no tensor; the others as in LogFunction.
  struct Called {
    NodePtr node;
    std::vector<at::Tensor> inputs;
    bool materializes = true;
  };
  bool end_function(LogItem item, size_t position, const std::vector<at::Tensor>& results,
                    const Called& called);
  // The item whose ops make up the function with this node; nothing if there is none.
  std::optional<size_t> function_of(const torch::autograd::Node* node) const;
  // `saved`: what its backward finds in saved_tensors.
  void meet_outputs(const LogItem& item, const std::vector<at::Tensor>& saved);
  // Gradients (grad_ops.cpp). set_grad(): the caller has set it. begin_backward() looks up the
  // tensors before the pass is made, end_backward() finds the gradients. False or nothing: trouble.
  bool set_grad(const at::Tensor& self, const at::Tensor& grad);
  // `only`: the leaves, if not all.
  std::optional<LogItem> begin_backward(const std::vector<at::Tensor>& outputs,
                                        const std::vector<at::Tensor>& seeds,
                                        const std::vector<at::Tensor>& only, bool keep_graph,
                                        bool create_graph);
  void end_backward(LogItem item);
  // torch.autograd.grad: the same, with gradients as results.
  std::optional<LogItem> begin_grad(const std::vector<at::Tensor>& outputs,
                                    const std::vector<at::Tensor>& seeds,
                                    const std::vector<at::Tensor>& inputs, bool keep_graph,
                                    bool create_graph, bool allow_unused);
  bool end_grad(LogItem item, const std::vector<at::Tensor>& grads);
  // requires_grad_() has been called on a result of the log.
  bool require_grad(const at::Tensor& tensor, bool value);
  // retain_grad(), likewise. False: it is none of these. retained(): those that a pass comes to.
  bool retain_grad(const at::Tensor& tensor);
  std::vector<at::Tensor> retained(const std::vector<at::Tensor>& outputs) const;
  // `data` is what `.data` of the tensor gave.
  bool take_data(const at::Tensor& tensor, const at::Tensor& data);
  // Hooks (pass_hooks.cpp). The last item has registered one on the tensor. begin_hook(): the pass
  // that has begun calls one with the gradient of a tensor, or the backward of a function with
  // several; what follows are its ops, until end_hook() with what it gave, or abandon_hook().
  void note_registration(const at::Tensor& tensor);
  LogValue registered_on(const torch::autograd::Node* node, uint32_t output) const;
  bool begin_hook(LogHook hook, const std::vector<at::Tensor>& grads);
  bool end_hook(const std::vector<at::Tensor>& results);
  void abandon_hook();
  // A backward pass has gone over what the tensor was computed by, and nobody can a second time.
  bool is_consumed(LogValue value) const;
  // A counter or flag: it has one element, and is computed from tensors of one element alone.
  bool is_single(LogValue value) const;
  // Computed from whole numbers and truth values alone: positions, tokens, masks.
  bool is_whole(LogValue value) const;
  // all() that is true, or any() that is not.
  bool is_check(LogValue value, bool truth) const;
  // Made of numbers of the program text and of sizes alone, by ops that give the same each time:
  // what is in it is no matter of the inputs.
  bool is_fixed(LogValue value) const;
  // Random numbers alone decide about it, and it may come out otherwise: `rand([]) < 0.1`, and not
  // `rand([]) < 0`.
  bool is_gamble(LogValue value) const;
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
  bool has_effects() const { return first_effect_ < items_.size(); }
  // One was called when the log had so many items, and has failed since; none: SIZE_MAX.
  size_t failed_effect() const { return failed_effect_; }
  bool has_trouble() const { return trouble_.has_value(); }
  std::optional<OpTrouble> take_trouble() { return std::exchange(trouble_, std::nullopt); }

  // The ops from `first` up to `last` as a log of their own, to which nothing is added. `given`:
  // what they take of the ops before, inputs of that log.
  std::unique_ptr<const OpLog> part(size_t first, size_t last,
                                    const std::vector<LogValue>& given) const;

  const std::vector<LogItem>& items() const { return items_; }
  const std::vector<LoggedTensor>& values() const { return values_; }
  const std::vector<OpAmbient>& ambients() const { return ambients_; }
  bool is_input_memory(int32_t memory) const { return memory == 0 || input_memory_[memory]; }
  // A result that requires a gradient.
  bool is_tracked(LogValue value) const {
    return value >= 0 && values_[value].kind == LoggedTensor::Kind::result &&
           values_[value].requires_grad;
  }
  // Tensors whose shapes depend on contents are among its arguments, its results.
  bool takes_dynamic(const LogItem& item) const;
  bool gives_dynamic(const LogItem& item) const;
  // Does the op change memory of an input?
  bool changes_input(const LogItem& item) const;
  // The tensor behind a value; undefined if nobody holds it any more.
  at::Tensor tensor(LogValue value) const { return at::Tensor(values_[value].impl.lock()); }

 private:
  template <class Part>
  void keep_account(const Part& part);
  bool take_call(LogItem& item, std::vector<c10::IValue>& stack, size_t first, bool* dynamic);
  void take_results(LogItem item, const std::vector<c10::IValue>& stack, size_t first,
                    bool dynamic);
  bool is_drawn(LogValue value) const;  // random numbers alone decide about it
  template <class Accept>
  bool is_made_of(LogValue value, const Accept& accept) const;
  template <class Accept, class EachPart>
  bool is_made_of(LogValue value, const Accept& accept, const EachPart& each_part) const;
  bool follow(const OpInfo& op, const std::vector<c10::IValue>& stack, size_t first);
  bool take_argument(LogItem& item, size_t index, const c10::IValue& value);
  std::optional<LogValue> take_tensor(const OpInfo& op, const at::Tensor& tensor);
  bool guess_sizes(const LogItem& item);
  bool keep_results(LogItem& item, const std::vector<c10::IValue>& stack, size_t first);
  void note_writes(LogItem& item);
  void read_written(LogItem& item);
  bool is_repeatable(const LogHook& hook, LogValue first);
  std::shared_ptr<LogFunction> fold(size_t position, const std::vector<at::Tensor>& results,
                                    const Called& called);
  void consume(const std::vector<NodePtr>& nodes);
  void take_uses(LogItem& item) const;
  bool knows_retained(const std::vector<NodePtr>& nodes, bool may);
  LogValue add_value(const at::Tensor& tensor, LoggedTensor::Kind kind);
  void read_state(LoggedTensor& value, const at::Tensor& tensor);
  int32_t memory_of(const at::Tensor& tensor);
  int32_t ambient();
  void note_effects(const LogItem& item);

  std::vector<LogItem> items_;
  std::vector<LoggedTensor> values_;
  std::unordered_map<c10::TensorImpl*, LogValue> by_impl_;
  std::unordered_map<c10::StorageImpl*, int32_t> by_storage_;
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> storages_;  // keep the addresses
  std::vector<bool> input_memory_{true};
  std::vector<std::vector<LogValue>> in_memory_ =
      std::vector<std::vector<LogValue>>(1);  // the values on each memory
  std::vector<LogValue> inputs_;
  std::vector<OpAmbient> ambients_;
  at::Tensor probe_, cast_probe_;  // tell one filling of autocast's cache from the next
  uint32_t filling_ = 0;
  std::optional<OpTrouble> trouble_;
  struct Consumed {
    NodePtr node;
    size_t item;  // the pass
  };
  std::vector<Consumed> consumed_;
  struct Registration {
    NodePtr node;
    uint32_t output;
    LogValue tensor;
  };
  std::vector<Registration> registrations_;
  struct Retained {
    NodePtr node;
    LogValue tensor;
  };
  std::vector<Retained> retained_;
  struct OpenHook {
    LogHook hook;
    size_t position;                                            // of its first op
    LogValue first;                                             // of the values that are its own
    std::vector<std::pair<c10::TensorImpl*, LogValue>> hidden;  // that stand for the same tensors
  };
  std::optional<OpenHook> open_hook_;
  std::vector<LogHook> hooks_;                            // of the pass at hand
  std::unordered_map<c10::TensorImpl*, LogValue> inner_;  // as by_impl_, of LoggedTensor::inner
  std::vector<at::Tensor> examples_;                      // of what a part is given
  std::vector<at::Tensor> unpacked_;  // outputs as their functions have saved them
  int recomputed_depth_ = 0;
  int32_t recomputed_pieces_ = 0;
  size_t recomputed_from_ = 0;      // the first item of the piece at hand
  size_t first_effect_ = SIZE_MAX;  // the first item that has effects
  size_t failed_effect_ = SIZE_MAX;
  int32_t numbers_ = 0;
  bool keeps_numbers_ = false;
  std::function<bool()> may_guess_;
  StandIns* stand_ins_ = nullptr;
  OpLog* outer_ = nullptr;
  int depth_ = 0;  // of calls in each other
  bool on_ = false;
  bool was_included_ = false;
};

}  // namespace smelt
