// What a region leaves behind, made explicit in the graph: inputs it wrote, gradients it set,
// outputs.
//
// Functionalization has kept every tensor's current value; a value that differs from the input's
// own is a write. Outputs come in three kinds. One that shares memory with an input in eager (a
// view of it) must do so when the graph runs: its chain of views is re-rooted on the input as it is
// after the writes. One that is the caller's very tensor is returned as it is. Everything else is a
// fresh tensor in eager; where the graph would hand out the memory of an input or of a constant
// instead, a copy is inserted.
//
// Effects stand last, in one order: writes, then gradients, then views of written inputs. So every
// value is computed from the inputs as they were, and nothing is changed if an op fails before.
#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <iterator>

#include "aten/convert.h"
#include "aten/keys.h"
#include "aten/overlap.h"
#include "capture/dispatch/recorder.h"
#include "diagnostics/counters.h"
#include "graph/alias.h"
#include "graph/effects.h"
#include "graph/numbers.h"
#include "ops/names.h"

namespace smelt {
namespace {

c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

}  // namespace

class Finisher {
 public:
  explicit Finisher(Recorder& recorder) : recorder_(recorder), graph_(recorder.graph_) {}

  Recorded run(const std::vector<at::Tensor>& outputs) {
    recorder_.check_not_refused();
    recorder_.rng_.finish(recorder_);
    read_outputs(outputs);
    read_inputs();
    read_grads();
    check_aliases();
    copy_borrowed();
    emit_writes();
    emit_grads();
    emit_outputs();
    drop_unused_inputs();
    graph_.symbols = *recorder_.symbols_;
    graph_.symbols.set_locator({});
    return {std::move(graph_), std::move(recorder_.captured_), std::move(recorder_.opaque_),
            std::move(returned_input_), std::move(recorder_.same_argument_)};
  }

 private:
  struct Output {
    ValueId value = -1;
    int32_t same_as = -1;   // the input it is
    int32_t alias_of = -1;  // the input whose memory it shows
    bool conj = false;
    const c10::TensorImpl* tensor = nullptr;
  };
  struct Grad {
    size_t input = 0;
    ValueId value = -1;    // -1: cleared
    int32_t same_as = -1;  // the input that became the gradient
  };

  ValueId current(const at::Tensor& tensor) { return recorder_.current_value(tensor); }

  void read_outputs(const std::vector<at::Tensor>& outputs) {
    for (const at::Tensor& returned : outputs) {
      Output output;
      if (returned.defined()) {
        at::Tensor tensor = returned;
        if (as_recording(tensor)) tensor = recorder_.wrapper_of(tensor);
        if (!recording_inside(tensor)) tensor = recorder_.twin_of(tensor);  // returned untouched
        if (!at::functionalization::impl::isFunctionalTensor(tensor))
          recorder_.refuse(
              "the function returned a tensor wrapper (of vmap, say) that outlives its transform");
        output.value = current(tensor);
        output.conj = tensor.is_conj();
        output.tensor = tensor.unsafeGetTensorImpl();
        auto same = recorder_.input_of_twin_.find(tensor.unsafeGetTensorImpl());
        if (same != recorder_.input_of_twin_.end()) output.same_as = same->second;
        for (size_t i = 0; i < recorder_.inputs_.size(); ++i)
          if (recorder_.inputs_[i].twin_storage == storage_of(tensor))
            output.alias_of = static_cast<int32_t>(i);
      }
      outputs_.push_back(output);
    }
  }

  void read_inputs() {
    for (size_t i = 0; i < recorder_.inputs_.size(); ++i) {
      const auto& input = recorder_.inputs_[i];
      auto* wrapper = at::functionalization::impl::unsafeGetFunctionalWrapper(input.twin);
      if (storage_of(input.twin) != input.twin_storage || wrapper->was_storage_changed())
        recorder_.refuse(
            "the function gives a tensor from outside other memory (.data = ..., set_() or "
            "resize_())");
      const TensorType now = type_of(input.twin);
      const TensorType& before = graph_.type(graph_.inputs[i].value);
      if (now.sizes != before.sizes || now.strides != before.strides || now.dtype != before.dtype)
        recorder_.refuse("the function changes the shape of a tensor from outside in place");
      new_value_.push_back(unviewed(current(input.twin)));
      after_.push_back(graph_.inputs[i].value);
      if (!input.is_leaf && input.twin.grad().defined())
        recorder_.refuse(
            "backward() reached a tensor that was computed outside of the recorded function; "
            "record the "
            "computation of that tensor as well, or detach() it");
    }
  }

  // What it is a view of, if that looks the same: squeeze_() of nothing, t_() and back.
  ValueId unviewed(ValueId value) const {
    ValueId whole = value;
    while (!is_outside(whole)) {
      const Node& node = graph_.nodes[graph_.values[whole].node];
      if (!node.traits.view || viewed(node) < 0) break;
      whole = viewed(node);
    }
    return graph_.type(whole) == graph_.type(value) ? whole : value;
  }

  bool is_written(size_t i) const { return new_value_[i] != graph_.inputs[i].value; }

  void check_aliases() {
    for (size_t i = 0; i < recorder_.inputs_.size(); ++i) {
      if (!is_written(i)) continue;
      for (size_t j = 0; j < recorder_.inputs_.size(); ++j)
        if (i != j && share_bytes(recorder_.inputs_[i].real, recorder_.inputs_[j].real))
          recorder_.refuse(
              "two tensors from outside share memory and the function changes one of them in "
              "place; pass one "
              "and take the view of it inside");
    }
  }

  ValueId copy(ValueId value) {
    TensorType type = graph_.type(value);
    type.conj = type.neg = false;  // a copy is what they say
    const bool dense = type.numel().is(0) || is_dense(type);
    if (!dense) type.strides = contiguous_strides(type.sizes);
    type.offset = 0;
    const std::optional<TensorType> types[] = {type};
    return graph_.nodes[graph_.add_node(names::kClone, {Arg(Ref{value}), Arg(None{})}, types)]
        .results[0];
  }
  // The value as a tensor whose conjugate bit is as in eager: a write through x.conj() leaves it on
  // the value of x, or takes it from the view's.
  ValueId with_conj(ValueId value, bool conj) {
    if (graph_.type(value).conj == conj) return value;
    if (!conj) return copy(value);
    std::optional<TensorType> types[] = {graph_.type(value)};
    types[0]->offset = 0;
    const NodeId physical = graph_.add_node(names::kConjPhysical, {Arg(Ref{value})}, types);
    types[0]->conj = true;
    const NodeId view = graph_.add_node(names::kConj, {Arg(Ref{graph_.nodes[physical].results[0]})},
                                        types, Traits{.view = true});
    return graph_.nodes[view].results[0];
  }
  static bool is_dense(const TensorType& type) {
    std::vector<std::pair<Size, Size>> dims;
    for (int d = 0; d < type.rank(); ++d)
      if (!type.sizes[d].is(1)) dims.emplace_back(type.strides[d], type.sizes[d]);
    // Every order in which the strides count up is dense.
    Size next = 1;
    while (!dims.empty()) {
      auto it = std::find_if(dims.begin(), dims.end(),
                             [&](const auto& dim) { return dim.first == next; });
      if (it == dims.end()) return false;
      next = next * it->second;
      dims.erase(it);
    }
    return true;
  }

  bool is_outside(ValueId root) const {
    return graph_.values[root].node < 0;  // an input or a constant owns the memory
  }

  void read_grads() {
    for (size_t i = 0; i < recorder_.inputs_.size(); ++i) {
      const auto& input = recorder_.inputs_[i];
      const at::Tensor& grad = input.twin.grad();
      const auto& owners = recorder_.options_.grad_owners;
      const bool is_dropped = !grad.defined() && std::ranges::find(owners, i) != owners.end();
      if (!input.is_leaf || (grad.is_same(input.twin_grad) && !is_dropped)) continue;
      Grad change{.input = i};
      if (grad.defined()) {
        const at::Tensor tensor = recording_inside(grad) ? grad : recorder_.twin_of(grad);
        change.value = current(tensor);
        auto same = recorder_.input_of_twin_.find(tensor.unsafeGetTensorImpl());
        if (same != recorder_.input_of_twin_.end()) change.same_as = same->second;
      }
      grads_.push_back(change);
    }
  }

  // Values that are fresh tensors in eager but the memory of an input or a constant here are
  // copied, before any write: they are what the input held when they were taken.
  void copy_borrowed() {
    view_root_ = new_value_;
    const std::vector<ValueId> roots = view_roots(graph_);
    const auto own = [&](ValueId& value) {
      if (value >= 0 && is_outside(roots[value])) value = copy(value);
    };
    for (size_t i = 0; i < new_value_.size(); ++i)
      if (is_written(i)) own(new_value_[i]);
    for (Grad& grad : grads_)
      if (grad.same_as < 0) own(grad.value);
    for (Output& output : outputs_)
      if (output.value >= 0 && output.same_as < 0 && output.alias_of < 0) {
        own(output.value);
        output.value = with_conj(output.value, output.conj);
      }
  }

  void emit_writes() {
    for (size_t i = 0; i < new_value_.size(); ++i) {
      if (!is_written(i)) continue;
      const ValueId input = graph_.inputs[i].value;
      const std::optional<TensorType> types[] = {graph_.type(input)};
      const NodeId node =
          graph_.add_node(effects::kWrite, {Arg(Ref{input}), Arg(Ref{new_value_[i]})}, types,
                          Traits{.effect = true, .view = true});
      after_[i] = graph_.nodes[node].results[0];
    }
  }

  void emit_grads() {
    for (const Grad& grad : grads_) {
      const Arg target(Ref{after_[grad.input]});
      const ValueId value = grad.same_as >= 0 ? after_[grad.same_as] : grad.value;
      if (value >= 0)
        graph_.add_node(effects::kSetGrad, {target, Arg(Ref{value})}, {}, Traits{.effect = true});
      else
        graph_.add_node(effects::kClearGrad, {target}, {}, Traits{.effect = true});
    }
  }

  // What holds of gradients at the start. One that is replaced without being read goes first, as
  // zero_grad() did, so that its memory is free. Where there was none, the function may have added
  // to it: the graph holds for none only.
  void emit_prologue(const std::vector<bool>& used) {
    if (recorder_.options_.grads_are_known) return;
    std::vector<Node> prologue, cleared;
    for (const Grad& grad : grads_) {
      const at::Tensor& before = recorder_.inputs_[grad.input].twin_grad;
      const Arg target(Ref{graph_.inputs[grad.input].value});
      if (before.defined()) {
        const int32_t old = recorder_.input_of_twin_.at(before.unsafeGetTensorImpl());
        if (used[graph_.inputs[old].value]) continue;
        cleared.push_back({effects::kClearGrad, {target}, {}, Traits{.effect = true}});
      } else {
        prologue.push_back({effects::kExpectNoGrad, {target}, {}, Traits{.effect = true}});
      }
    }
    const size_t checked = place_checks();
    graph_.nodes.insert(graph_.nodes.begin() + static_cast<ptrdiff_t>(checked), cleared.begin(),
                        cleared.end());
    graph_.nodes.insert(graph_.nodes.begin(), prologue.begin(), prologue.end());
  }

  // Checks of numbers stand before all that changes something, and out of the way of what is
  // computed: those on arguments first, with the arithmetic they need, the others behind it.
  // Returns where the last of them is behind.
  size_t place_checks() {
    std::vector<bool> early(graph_.values.size());
    for (const Input& input : graph_.inputs)
      early[input.value] = numbers::is_number(graph_.type(input.value));
    std::vector<Node> first, between, late, effects;
    bool may_fail = false;  // behind the first
    for (Node& node : graph_.nodes) {
      const bool is_number = node.op == numbers::kCompute || numbers::is_check(node.op);
      bool is_early = is_number;
      for (const Arg& arg : node.args) each_ref(arg, [&](Ref ref) { is_early &= early[ref.id]; });
      if (is_early && is_number)
        for (ValueId result : node.results) early[result] = true;
      const bool is_late = !is_early && numbers::is_check(node.op);
      may_fail |= is_number && !is_early;
      const bool behind = changes_caller(node.op) || !effects.empty();
      (is_early ? first : is_late ? late : behind ? effects : between).push_back(std::move(node));
    }
    const size_t checked = first.size() + (may_fail ? between.size() + late.size() : 0);
    graph_.nodes = std::move(first);
    for (std::vector<Node>* part : {&between, &late, &effects})
      std::move(part->begin(), part->end(), std::back_inserter(graph_.nodes));
    return checked;
  }
  static bool changes_caller(OpName op) {
    return op == effects::kWrite || op == effects::kSetGrad || op == effects::kClearGrad;
  }

  // The chain of views from `root` to `value`, made again on another root.
  ValueId reroot(ValueId value, ValueId root, ValueId new_root) {
    if (value == root) return new_root;
    if (is_outside(value))
      recorder_.refuse("the function returns a view of what a tensor from outside was before");
    const Node node = graph_.nodes[graph_.values[value].node];
    if (!node.traits.view)
      recorder_.refuse(
          "the function returns a view of a tensor from outside that " + node.op.str() +
          " stands for, so that the graph could not return such a view; return a clone() of it");
    std::vector<Arg> args = node.args;
    bool first = true;
    for (Arg& arg : args)
      each_ref(arg, [&](Ref& ref) {
        if (first) ref.id = reroot(ref.id, root, new_root);
        first = false;
      });
    std::vector<std::optional<TensorType>> types;
    for (ValueId result : node.results) {
      if (result < 0)
        types.emplace_back();
      else
        types.emplace_back(graph_.type(result));
    }
    const NodeId copy = graph_.add_node(node.op, std::move(args), types, node.traits);
    return graph_.nodes[copy].results[graph_.values[value].result];
  }

  ValueId detach(ValueId value) {
    const std::optional<TensorType> types[] = {graph_.type(value)};
    const NodeId node =
        graph_.add_node(names::kDetach, {Arg(Ref{value})}, types, Traits{.view = true});
    return graph_.nodes[node].results[0];
  }

  void emit_outputs() {
    std::unordered_map<const c10::TensorImpl*, ValueId>
        done;  // one tensor returned twice stays one
    for (Output& output : outputs_) {
      if (output.same_as >= 0) {
        output.value = after_[output.same_as];
      } else if (output.alias_of >= 0) {
        const auto [known, is_new] = done.try_emplace(output.tensor, -1);
        const ValueId whole = after_[output.alias_of];
        if (is_new) known->second = reroot(output.value, view_root_[output.alias_of], whole);
        if (known->second == whole) known->second = detach(whole);  // x.data: not x itself
        output.value = known->second;
      }
      graph_.outputs.push_back(output.value);
      returned_input_.push_back(output.same_as);
    }
  }

  // Parameters that were only looked at, gradients that were replaced: not needed to run. Arguments
  // stay.
  void drop_unused_inputs() {
    const std::vector<bool> used = needed_values();
    emit_prologue(used);
    const size_t count = graph_.inputs.size();
    std::vector<bool> keep(count);
    for (size_t i = 0; i < count; ++i)
      keep[i] = graph_.inputs[i].source == Source::argument || used[graph_.inputs[i].value];
    for (size_t i = 0; i < count; ++i)  // a gradient is found through its owner
      if (keep[i] && graph_.inputs[i].source == Source::grad) keep[graph_.inputs[i].index] = true;
    std::vector<int32_t> renumbered(count, -1);
    std::vector<Input> kept;
    for (size_t i = 0; i < count; ++i) {
      if (!keep[i]) continue;
      renumbered[i] = static_cast<int32_t>(kept.size());
      kept.push_back(graph_.inputs[i]);
    }
    for (Input& input : kept)
      if (input.source == Source::grad) input.index = renumbered[input.index];
    for (int32_t& input : returned_input_)
      if (input >= 0) input = renumbered[input];
    graph_.inputs = std::move(kept);
    drop_dead_nodes(used);
  }

  // The values that outputs, effects and random draws depend on.
  std::vector<bool> needed_values() const {
    std::vector<bool> needed(graph_.values.size());
    for (ValueId value : graph_.outputs)
      if (value >= 0) needed[value] = true;
    for (size_t n = graph_.nodes.size(); n-- > 0;) {
      const Node& node = graph_.nodes[n];
      bool live = node.traits.effect || (node.traits.random && node.op != effects::kSaveRng);
      for (ValueId result : node.results) live |= result >= 0 && needed[result];
      if (!live) continue;
      for (const Arg& arg : node.args) each_ref(arg, [&](Ref ref) { needed[ref.id] = true; });
    }
    return needed;
  }

  void drop_dead_nodes(const std::vector<bool>& needed) {
    std::vector<bool> keep(graph_.nodes.size());
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      keep[n] = node.traits.effect || (node.traits.random && node.op != effects::kSaveRng);
      for (ValueId result : node.results) keep[n] = keep[n] || (result >= 0 && needed[result]);
    }
    graph_.keep_nodes(keep);
  }

  Recorder& recorder_;
  Graph& graph_;
  std::vector<Output> outputs_;
  std::vector<Grad> grads_;
  std::vector<ValueId> new_value_;  // of each input, before the effects
  std::vector<ValueId> view_root_;  // the value its views were taken of
  std::vector<ValueId> after_;      // of each input, after them
  std::vector<int32_t> returned_input_;
};

Recorded Recorder::finish(const std::vector<at::Tensor>& outputs) {
  std::lock_guard lock(mutex_);
  // Below autograd; functionalization's syncs still reach the record kernel.
  c10::impl::ExcludeDispatchKeyGuard below(c10::DispatchKeySet({kTopKey}) |
                                           c10::autograd_dispatch_keyset_with_ADInplaceOrView |
                                           c10::autocast_dispatch_keyset);
  Recorded recorded = Finisher(*this).run(outputs);
  count(Counter::graphs);
  return recorded;
}

}  // namespace smelt
