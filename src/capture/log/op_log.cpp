// How an op is followed: arguments looked up, op computed below the top key, results entered.
//
// What makes a log unfaithful is found here or by the caller who looks at Python: an argument of
// unknown origin; a result on the host or a shape that the contents decide; autograd state changed
// without an op (requires_grad_(), custom autograd functions), which shows as a requires_grad that
// is not the one left by the last op on the tensor. The op is computed all the same, and the first
// trouble kept.
//
// Rule for whoever changes this file: an op that can't be followed must be trouble, never left out.
#include "capture/log/op_log.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>

#include "aten/convert.h"
#include "aten/each_tensor.h"
#include "aten/keys.h"
#include "aten/name_dtype.h"
#include "aten/without_contents.h"
#include "capture/log/grad_ops.h"
#include "capture/log/opaque_call.h"

namespace smelt {
namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;
using Kind = OpTrouble::Kind;

thread_local OpLog* current_log = nullptr;

// A value that means the same in the next run.
bool can_keep(const c10::IValue& value) {
  if (value.isList()) {
    if (value.isIntList() || value.isDoubleList() || value.isBoolList()) return true;
    const auto list = value.toListRef();
    return std::all_of(list.begin(), list.end(), can_keep);
  }
  return value.isNone() || value.isScalar() || value.isString() || value.isDevice() ||
         value.isGenerator() || value.isCustomClass();
}

bool is_functorch_wrapper(const at::Tensor& tensor) {
  return tensor.key_set().has_any(
      DispatchKeySet({DispatchKey::FuncTorchBatched, DispatchKey::FuncTorchGradWrapper,
                      DispatchKey::BatchedNestedTensor}));
}

// One more for as long as it lives.
class Nested {
 public:
  explicit Nested(int& depth) : depth_(depth) { ++depth_; }
  ~Nested() { --depth_; }
  Nested(const Nested&) = delete;
  Nested& operator=(const Nested&) = delete;

 private:
  int& depth_;
};

uint32_t version_of(const at::Tensor& tensor) {
  return tensor.is_inference() ? 0
                               : tensor.unsafeGetTensorImpl()->version_counter().current_version();
}

// Nothing says what results it has but its kernel, which may go by contents.
bool has_unknown_shapes(const OpInfo& op) {
  constexpr DispatchKey kTellShapes[] = {DispatchKey::Meta, DispatchKey::CompositeExplicitAutograd,
                                         DispatchKey::CompositeExplicitAutogradNonFunctional,
                                         DispatchKey::CompositeImplicitAutograd};
  return op.may_have_effects && std::ranges::none_of(kTellShapes, [&](DispatchKey key) {
           return op.handle.hasKernelForDispatchKey(key);
         });
}

bool gives_lists(const OpInfo& op) {
  return std::ranges::any_of(op.handle.schema().returns(), [](const c10::Argument& result) {
    return result.type()->kind() == c10::TypeKind::ListType;
  });
}

}  // namespace

OpLog::OpLog() { ambient(); }

OpLog::~OpLog() {
  if (on_) pause();
}

OpLog* OpLog::current() { return current_log; }

void OpLog::resume() {
  if (on_) return;
  on_ = true;
  outer_ = std::exchange(current_log, this);
  was_included_ = c10::impl::tls_is_dispatch_key_included(kTopKey);
  c10::impl::tls_set_dispatch_key_included(kTopKey, true);
}

void OpLog::pause() {
  if (!on_) return;
  on_ = false;
  current_log = std::exchange(outer_, nullptr);
  c10::impl::tls_set_dispatch_key_included(kTopKey, was_included_);
}

void OpLog::give_up(Kind kind, std::string detail) {
  if (!trouble_) trouble_ = OpTrouble{kind, std::move(detail)};
}

// -- values

int32_t OpLog::memory_of(const at::Tensor& tensor) {
  if (!tensor.has_storage()) return 0;
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  const auto [it, is_new] = by_storage_.try_emplace(storage, 0);
  if (is_new) {
    it->second = static_cast<int32_t>(input_memory_.size());
    input_memory_.push_back(false);
    in_memory_.emplace_back();
    storages_.push_back(tensor.storage().getWeakStorageImpl());
  }
  return it->second;
}

void OpLog::read_state(LoggedTensor& value, const at::Tensor& tensor) {
  value.requires_grad = tensor.requires_grad();
  value.version = version_of(tensor);
}

LogValue OpLog::add_value(const at::Tensor& tensor, LoggedTensor::Kind kind) {
  LoggedTensor& value =
      values_.emplace_back(c10::weak_intrusive_ptr<c10::TensorImpl>(tensor.getIntrusivePtr()));
  value.kind = kind;
  value.memory = memory_of(tensor);
  value.item = items_.size();
  value.dtype = tensor.scalar_type();
  value.device = tensor.device();
  if (!tensor.is_nested()) value.sizes = tensor.sizes().vec();
  if (!tensor.is_nested() && tensor.layout() == c10::kStrided)
    value.strides = tensor.strides().vec();
  if (tensor.has_storage()) value.offset = tensor.storage_offset();
  value.conj = tensor.is_conj();
  value.neg = tensor.is_neg();
  read_state(value, tensor);
  value.first_version = value.version;
  const auto id = static_cast<LogValue>(values_.size() - 1);
  by_impl_[tensor.unsafeGetTensorImpl()] = id;
  if (value.memory != 0) in_memory_[value.memory].push_back(id);
  return id;
}

std::optional<TensorType> LoggedTensor::type() const {
  const std::optional<DType> element = to_dtype(dtype);
  if (!element || strides.size() != sizes.size()) return std::nullopt;
  TensorType type;
  type.dtype = *element;
  type.device = to_device(device);
  type.sizes.assign(sizes.begin(), sizes.end());
  type.strides.assign(strides.begin(), strides.end());
  type.offset = offset;
  type.conj = conj;
  type.neg = neg;
  return type;
}

LogValue OpLog::add_input(const at::Tensor& tensor) {
  if (const LogValue known = find(tensor); known >= 0) return known;
  const LogValue id = add_value(tensor, LoggedTensor::Kind::input);
  input_memory_[values_[id].memory] = true;
  inputs_.push_back(id);
  return id;
}

LogValue OpLog::find(const at::Tensor& tensor) const {
  const auto it = by_impl_.find(tensor.unsafeGetTensorImpl());
  if (it != by_impl_.end()) return it->second;
  if (!open_hook_) return -1;
  const auto inner = inner_.find(tensor.unsafeGetTensorImpl());
  return inner == inner_.end() ? -1 : inner->second;
}

bool OpLog::check_state(LogValue value, const at::Tensor& tensor) {
  const LoggedTensor& known = values_[value];
  if (known.memory != 0 && version_of(tensor) != known.version)
    give_up(Kind::memory, "a tensor by code that was not seen");
  else if (tensor.requires_grad() != known.requires_grad)
    give_up(Kind::autograd, "a change of requires_grad");
  else
    return true;
  return false;
}

// Whether `accept` takes the value and all that it is computed from. `each_part` gives the
// arguments of an op that count.
template <class Accept, class EachPart>
bool OpLog::is_made_of(LogValue value, const Accept& accept, const EachPart& each_part) const {
  std::vector<LogValue> open{value};
  std::vector<bool> seen(values_.size());
  for (size_t i = 0; i < open.size(); ++i) {
    const LoggedTensor& known = values_[open[i]];
    if (known.dynamic || !accept(known)) return false;
    if (known.kind != LoggedTensor::Kind::result || known.item >= items_.size()) continue;
    each_part(items_[known.item], [&](LogValue argument) {
      if (seen[argument]) return;
      seen[argument] = true;
      open.push_back(argument);
    });
  }
  return true;
}

template <class Accept>
bool OpLog::is_made_of(LogValue value, const Accept& accept) const {
  return is_made_of(value, accept,
                    [](const LogItem& item, const auto& visit) { each_argument(item, visit); });
}

bool OpLog::is_single(LogValue value) const {
  return is_made_of(
      value, [](const LoggedTensor& tensor) { return c10::multiply_integers(tensor.sizes) == 1; });
}

bool OpLog::is_whole(LogValue value) const { return is_steady(value); }

namespace {

// By an op so far.
bool is_written(const std::vector<LogItem>& items, const std::vector<LoggedTensor>& values,
                int32_t memory) {
  return std::ranges::any_of(items, [&](const LogItem& item) {
    return std::ranges::any_of(item.written,
                               [&](LogValue to) { return values[to].memory == memory; });
  });
}

}  // namespace

// A comparison of random numbers that is no gamble has one outcome as well. On a GPU only integers are
// the same each time: its kernels may add floating numbers in any order.
bool OpLog::is_fixed(LogValue value) const {
  if (is_drawn(value)) return !is_gamble(value);
  const auto is_exact = [](const LoggedTensor& tensor) {
    return tensor.device.is_cpu() ||
           (tensor.device.is_cuda() && c10::isIntegralType(tensor.dtype, /*includeBool=*/true));
  };
  const auto gives_the_same = [](const LogItem& item) {
    return !item.random && item.scalars.empty() && item.written.empty() && !item.op->is_custom &&
           item.op != &opaque_op() && !is_grad_op(*item.op) && !item.op->facts.is_uninitialized;
  };
  return is_made_of(value, [&](const LoggedTensor& tensor) {
    if (tensor.kind == LoggedTensor::Kind::input || tensor.inner || !is_exact(tensor) ||
        is_input_memory(tensor.memory))
      return false;
    if (tensor.kind == LoggedTensor::Kind::result &&
        (tensor.item >= items_.size() || !gives_the_same(items_[tensor.item])))
      return false;
    return !is_written(items_, values_, tensor.memory);
  });
}

namespace {

// An index says which elements are taken, not what they are: a shuffled mask is full if the mask
// is.
template <class Visit>
void each_source(const LogItem& item, const Visit& visit) {
  for (const LogSlot& slot : item.slots) {
    if (item.op->facts.takes_elements && slot.argument != 0) continue;
    for (LogValue value : slot.values)
      if (value >= 0) visit(value);
  }
}

}  // namespace

bool OpLog::is_drawn(LogValue value) const {
  bool draws = false;
  const auto takes = [&](const LoggedTensor& tensor) {
    if (tensor.kind == LoggedTensor::Kind::input || is_input_memory(tensor.memory)) return false;
    if (tensor.kind == LoggedTensor::Kind::result && tensor.item < items_.size())
      draws |= items_[tensor.item].random;
    return true;
  };
  const bool has_no_inputs = is_made_of(
      value, takes, [](const LogItem& item, const auto& visit) { each_source(item, visit); });
  return has_no_inputs && draws;
}

namespace {

// A comparison of numbers from [0, 1) with one that is not among them. `is_exact`: none of them is
// rounded to 1.
bool is_certain(const LogItem& item, const LogItem& drawn, bool is_exact) {
  if (!item.scalars.empty() || !drawn.scalars.empty() || item.arguments.size() != 2 ||
      !item.arguments[1].isScalar() || !drawn.op->facts.draws_unit_interval)
    return false;
  const c10::Scalar bound = item.arguments[1].toScalar();
  if (bound.isComplex()) return false;
  const double number = bound.toDouble();
  const bool is_above = is_exact ? number >= 1 : number > 1;
  switch (item.op->facts.compares) {
    case Comparison::none:
    case Comparison::equal:
    case Comparison::unequal: return false;
    case Comparison::below: return number <= 0 || is_above;
    case Comparison::above: return number < 0 || is_above;
  }
  return false;
}

}  // namespace

bool OpLog::is_gamble(LogValue value) const {
  if (!is_drawn(value)) return false;
  const auto made_by = [&](LogValue of) {
    const LoggedTensor& known = values_[of];
    const bool is_made = known.kind == LoggedTensor::Kind::result && known.item < items_.size();
    return is_made ? &items_[known.item] : nullptr;
  };
  const LogItem* item = made_by(value);
  if (item == nullptr || item->random || !item->written.empty()) return true;
  std::vector<LogValue> arguments;
  each_argument(*item, [&](LogValue argument) { arguments.push_back(argument); });
  if (arguments.size() != 1 || is_written(items_, values_, values_[value].memory) ||
      is_written(items_, values_, values_[arguments[0]].memory))
    return true;
  const LogItem* drawn = made_by(arguments[0]);
  const c10::ScalarType dtype = values_[arguments[0]].dtype;
  return drawn == nullptr ||
         !is_certain(*item, *drawn, dtype == c10::kFloat || dtype == c10::kDouble);
}

namespace {

bool packs(const LogItem& item) { return item.op->facts.packs_sequences; }

}  // namespace

// What is computed from them may be of floating point: a mask that is scaled, resized, compared.
bool OpLog::is_steady(LogValue value) const {
  const auto is_whole = [](const LoggedTensor& tensor) {
    return c10::isIntegralType(tensor.dtype, /*includeBool=*/true);
  };
  const auto takes = [&](const LoggedTensor& tensor) {
    if (tensor.kind == LoggedTensor::Kind::input) return is_whole(tensor);
    if (tensor.kind == LoggedTensor::Kind::constant || tensor.item >= items_.size()) return true;
    return !items_[tensor.item].random && (!packs(items_[tensor.item]) || is_whole(tensor));
  };
  return is_made_of(value, takes, [](const LogItem& item, const auto& visit) {
    for (const LogSlot& slot : item.slots)
      for (LogValue part : slot.values)
        if (part >= 0 && !(packs(item) && slot.argument == 0)) visit(part);
  });
}

// What `any` finds may stay as it is either way: an expert that gets tokens gets some again.
bool OpLog::is_check(LogValue value, bool truth) const {
  const LoggedTensor& known = values_[value];
  if (known.kind != LoggedTensor::Kind::result || known.item >= items_.size()) return false;
  // Computed from what ops gave between two numbers that were read before, it is a loop's that has
  // gone on until now, no one knows for how long.
  const auto reads = [](const LogItem& item) { return item.number >= 0; };
  const auto is_new = [&](const LoggedTensor& tensor) {
    if (tensor.kind != LoggedTensor::Kind::result || tensor.item >= items_.size()) return true;
    const auto item = items_.begin() + static_cast<ptrdiff_t>(tensor.item);
    return std::ranges::none_of(items_.begin(), item, reads) ||
           std::ranges::none_of(item, items_.end(), reads);
  };
  const OpFacts& facts = items_[known.item].op->facts;
  if (facts.asks == Quantifier::any) return !truth || is_made_of(value, is_new);
  if (truth && facts.asks == Quantifier::all) return true;
  // Numbers are equal by design, not by chance (mask.sum() == mask.numel()), unless they are drawn.
  return facts.compares == (truth ? Comparison::equal : Comparison::unequal) &&
         is_made_of(value, [this](const LoggedTensor& tensor) {
           return tensor.kind != LoggedTensor::Kind::result || tensor.item >= items_.size() ||
                  !items_[tensor.item].random;
         });
}

void OpLog::check_inputs() {
  for (LogValue input : inputs_)
    if (const at::Tensor real = tensor(input); real.defined() && !check_state(input, real)) return;
}

void OpLog::rewind(size_t position) {
  std::erase_if(consumed_, [&](const Consumed& known) { return known.item >= position; });
  if (position >= items_.size()) return;
  if (first_effect_ >= position) first_effect_ = SIZE_MAX;
  items_.erase(items_.begin() + static_cast<ptrdiff_t>(position), items_.end());
  for (auto it = by_impl_.begin(); it != by_impl_.end();) {
    const LoggedTensor& value = values_[it->second];
    const bool gone = value.kind == LoggedTensor::Kind::result && value.item >= position;
    it = gone ? by_impl_.erase(it) : std::next(it);
  }
  std::erase_if(retained_,
                [&](const Retained& known) { return values_[known.tensor].item >= position; });
  std::erase_if(inner_, [&](const auto& known) { return values_[known.second].item >= position; });
}

// -- ambient

int32_t OpLog::ambient() {
  OpAmbient now = OpAmbient::current();
  if (now.any_autocast() && now.autocast_cache) {
    // A weight of our own: when its cast is another one than before, the cache was emptied.
    c10::impl::ExcludeDispatchKeyGuard plain(kTopKey);
    if (!probe_.defined()) {
      c10::InferenceMode off(false);
      probe_ = at::Tensor(at::ones({1})).set_requires_grad(true);
    }
    const at::Tensor cast =
        at::autocast::cached_cast(at::autocast::get_autocast_dtype(c10::kCPU), probe_, c10::kCPU);
    if (!cast.is_same(cast_probe_)) ++filling_;
    cast_probe_ = cast;
  }
  now.cache_filling = filling_;
  if (!ambients_.empty() && ambients_.back() == now)
    return static_cast<int32_t>(ambients_.size() - 1);
  const auto known = std::find(ambients_.begin(), ambients_.end(), now);
  if (known != ambients_.end()) return static_cast<int32_t>(known - ambients_.begin());
  ambients_.push_back(now);
  return static_cast<int32_t>(ambients_.size() - 1);
}

// -- ops

bool OpLog::follow(const OpInfo& op, const std::vector<c10::IValue>& stack, size_t first) {
  const std::string& name = op.name.str();
  const auto refuse = [&](Kind kind, std::string detail) {
    give_up(kind, std::move(detail));
    return false;
  };
  if (torch::autograd::get_current_graph_task_id() != -1 && !open_hook_)
    return refuse(Kind::autograd, "a backward pass");
  if (c10::impl::dispatch_mode_enabled()) return refuse(Kind::subclass, "TorchDispatchMode");
  if (c10::impl::tls_is_dispatch_key_included(DispatchKey::FuncTorchDynamicLayerFrontMode))
    return refuse(Kind::transform, name);
  bool python = false, wrapped = false, differentiated = false;
  for (size_t i = first; i < stack.size(); ++i) {
    each_tensor(stack[i], [&](const at::Tensor& tensor) {
      python |= tensor.key_set().has(DispatchKey::Python);
      wrapped |= is_functorch_wrapper(tensor);
      differentiated |= tensor.requires_grad();
    });
  }
  if (wrapped) return refuse(Kind::transform, name);
  if (python) return refuse(Kind::subclass, name);
  // Behind an op with effects a run can't be given up any more, so that no number may decide about
  // it.
  const bool is_number = op.facts.gives_number && keeps_numbers_ && !has_effects();
  if (!is_number && !op.log.dynamic_shapes && depends_on_contents(op, stack, first))
    return refuse(Kind::data_dependent, name);
  if (has_unknown_shapes(op) && gives_lists(op)) return refuse(Kind::data_dependent, name);
  if (op.facts.sets_storage) return refuse(Kind::memory, name);
  if (differentiated && at::GradMode::is_enabled() && !op.log.ignores_autograd &&
      c10::impl::tls_local_dispatch_key_set().excluded_.has(DispatchKey::AutogradFunctionality))
    return refuse(Kind::autograd, name + " below autograd");
  return true;
}

// The value of a tensor argument. Nothing: trouble.
std::optional<LogValue> OpLog::take_tensor(const OpInfo& op, const at::Tensor& tensor) {
  if (!tensor.defined()) return -1;
  if (const LogValue known = find(tensor); known >= 0) {
    if (!values_[known].dynamic || (op.log.takes_any_shape && keeps_numbers_))
      return check_state(known, tensor) ? std::optional(known) : std::nullopt;
    give_up(Kind::data_dependent, "the shape of an argument of " + op.name.str());
    return std::nullopt;
  }
  const bool number = tensor.unsafeGetTensorImpl()->is_wrapped_number();
  if (!number && !op.facts.lifts) {
    give_up(Kind::foreign_tensor, op.name.str());
    return std::nullopt;
  }
  const LogValue id = add_value(tensor, LoggedTensor::Kind::constant);
  c10::impl::ExcludeDispatchKeyGuard plain(kTopKey);
  at::NoGradGuard no_grad;
  values_[id].constant = number ? tensor : tensor.clone();
  return id;
}

bool OpLog::take_argument(LogItem& item, size_t index, const c10::IValue& value) {
  LogSlot slot;
  slot.argument = static_cast<uint32_t>(index);
  const auto take = [&](const at::Tensor& tensor) {
    const std::optional<LogValue> id = take_tensor(*item.op, tensor);
    if (id) slot.values.push_back(*id);
    return id.has_value();
  };
  if (value.isTensor()) {
    const bool is_scalar = std::any_of(
        item.scalars.begin(), item.scalars.end(),
        [&](const LogScalar& scalar) { return scalar.is_tensor && scalar.argument == index; });
    if (is_scalar || !value.toTensor().defined()) {
      item.arguments.push_back(value);
      return true;
    }
    if (!take(value.toTensor())) return false;
  } else if (value.isTensorList()) {
    slot.is_list = true;
    for (const at::Tensor& tensor : value.toTensorVector())
      if (!take(tensor)) return false;
  } else if (value.isOptionalTensorList()) {
    slot.is_list = slot.is_optional_list = true;
    for (const auto& tensor : value.toOptionalTensorVector())
      if (!take(tensor.value_or(at::Tensor()))) return false;
  } else if (can_keep(value)) {
    item.arguments.push_back(value);
    return true;
  } else {
    give_up(value.isStorage() ? Kind::memory : Kind::argument, item.op->name.str());
    return false;
  }
  item.arguments.emplace_back();
  item.slots.push_back(std::move(slot));
  return true;
}

void OpLog::note_writes(LogItem& item) {
  const auto& schema = item.op->handle.schema().arguments();
  const std::vector<int>& silent = item.op->log.silent_writes;
  const int when = item.op->log.silent_when;
  const bool is_silent =
      !silent.empty() &&
      (when < 0 || (item.arguments[when].isBool() && item.arguments[when].toBool()));
  for (const LogSlot& slot : item.slots) {
    const c10::AliasInfo* alias = schema[slot.argument].alias_info();
    const bool listed = is_silent && std::find(silent.begin(), silent.end(),
                                               static_cast<int>(slot.argument)) != silent.end();
    if (!(alias && alias->isWrite()) && !listed) continue;
    for (LogValue value : slot.values)
      if (value >= 0) item.written.push_back(value);
  }
}

// A write shows in every tensor on that memory: version, and requires_grad of the bases of views.
void OpLog::read_written(LogItem& item) {
  for (LogValue written : item.written) {
    const int32_t memory = values_[written].memory;
    const auto read = [&](LogValue id) {
      const at::Tensor real = tensor(id);
      if (!real.defined()) return;
      const uint32_t before = values_[id].version;
      read_state(values_[id], real);
      if (values_[id].version > before) item.rises.emplace_back(id, values_[id].version - before);
    };
    if (memory == 0) read(written);
    for (LogValue id : in_memory_[memory]) read(id);
  }
}

bool OpLog::keep_results(LogItem& item, const std::vector<c10::IValue>& stack, size_t first) {
  read_written(item);
  const auto is_argument = [&](LogValue id) {
    return std::any_of(item.slots.begin(), item.slots.end(), [&](const LogSlot& slot) {
      return std::find(slot.values.begin(), slot.values.end(), id) != slot.values.end();
    });
  };
  // A view of what `.data` gave.
  const auto shows_apart = [&](int32_t memory) {
    const LogValue first =
        item.slots.empty() || item.slots[0].values.empty() ? -1 : item.slots[0].values[0];
    return memory != 0 && first >= 0 && values_[first].apart && values_[first].memory == memory;
  };
  bool known = true;
  const auto keep = [&](const at::Tensor& tensor) {
    if (!tensor.defined()) {
      item.results.push_back(-1);
      return;
    }
    LogValue id = find(tensor);
    if (id < 0) {
      id = add_value(tensor, LoggedTensor::Kind::result);
      values_[id].apart = shows_apart(values_[id].memory);
    } else if (is_argument(id) ||
               std::find(item.results.begin(), item.results.end(), id) != item.results.end())
      read_state(values_[id], tensor);
    else
      known = false;  // a tensor that the op had kept
    item.results.push_back(id);
  };
  for (size_t i = first; i < stack.size(); ++i) {
    if (stack[i].isTensor())
      keep(stack[i].toTensor());
    else if (stack[i].isTensorList())
      for (const at::Tensor& tensor : stack[i].toTensorVector()) keep(tensor);
    else if (!stack[i].isScalar() && !stack[i].isNone() && !stack[i].isIntList())
      known = false;
  }
  if (!known) give_up(Kind::argument, item.op->name.str());
  return known;
}

void OpLog::begin_recomputed() {
  if (recomputed_depth_++ > 0) return;  // the outer one computes all of it again
  ++recomputed_pieces_;
  recomputed_from_ = items_.size();
}

void OpLog::end_recomputed(bool keeps_random_state) {
  if (--recomputed_depth_ > 0) return;
  for (size_t i = recomputed_from_; i < items_.size(); ++i) {
    const LogItem& item = items_[i];
    if (item.has_effects || changes_input(item) || item.op == &opaque_op() ||
        (item.random && !keeps_random_state))
      return give_up(Kind::autograd, "a checkpoint that does something twice");
    items_[i].recomputed = recomputed_pieces_;
  }
}

// Of the item that comes next.
void OpLog::note_effects(const LogItem& item) {
  if (item.has_effects) first_effect_ = std::min(first_effect_, items_.size());
}

// The op is computed in any case, exactly once: what goes wrong in writing it down is trouble.
void OpLog::call(const OpInfo& op, DispatchKeySet below, std::vector<c10::IValue>* stack) {
  const size_t first = stack->size() - op.arg_types.size();
  LogItem item;
  item.op = &op;
  bool kept = false, dynamic = false;
  keep_account([&] { kept = take_call(item, *stack, first, &dynamic); });
  if (op.may_have_effects) failed_effect_ = items_.size();
  {
    c10::impl::ExcludeDispatchKeyGuard inner(kTopKey);
    const Nested computing(depth_);
    try {
      op.handle.redispatchBoxed(below, stack);
    } catch (const std::exception&) {
      // Whether it fails may depend on contents, and code that catches the error goes another way
      // then.
      keep_account([&] { give_up(Kind::data_dependent, "an error of " + op.name.str()); });
      throw;
    }
  }
  if (op.may_have_effects) failed_effect_ = SIZE_MAX;
  keep_account([&] {
    if (kept)
      take_results(std::move(item), *stack, first, dynamic);
    else
      read_written(item);
  });
}

template <class Part>
void OpLog::keep_account(const Part& part) {
  try {
    part();
  } catch (const std::exception& problem) {
    std::string detail;
    try {
      detail = problem.what();
    } catch (const std::exception&) {  // no memory for it either
    }
    give_up(Kind::internal, std::move(detail));
  }
}

// What an op is about to be called with. False: it can't be written down.
bool OpLog::take_call(LogItem& item, std::vector<c10::IValue>& stack, size_t first, bool* dynamic) {
  const OpInfo& op = *item.op;
  if (stand_ins_) item.scalars = take_stand_ins(*stand_ins_, op, stack, first);
  bool kept = follow(op, stack, first);
  *dynamic =
      (op.log.dynamic_shapes && depends_on_contents(op, stack, first)) || has_unknown_shapes(op);
  item.arguments.reserve(op.arg_types.size());
  for (size_t i = first; kept && i < stack.size(); ++i)
    kept = take_argument(item, i - first, stack[i]);
  if (!kept) return false;
  note_writes(item);
  item.ambient = ambient();
  item.random = draws(op, item.arguments);
  item.has_effects = op.may_have_effects;
  const LoggedTensor* written = item.written.empty() ? nullptr : &values_[item.written[0]];
  if (op.facts.resizes && written && is_input_memory(written->memory)) {
    give_up(Kind::memory, op.name.str());
    return false;
  }
  // torch.tensor() makes sure that it gives a leaf.
  return !(op.facts.detaches && written && written->kind == LoggedTensor::Kind::constant &&
           !written->requires_grad);
}

// What it gave.
void OpLog::take_results(LogItem item, const std::vector<c10::IValue>& stack, size_t first,
                         bool dynamic) {
  const OpInfo& op = *item.op;
  if (!keep_results(item, stack, first)) return;
  if (c10::get_default_dtype() != caffe2::TypeMeta::Make<float>() && item.slots.empty() &&
      item.results.size() == 1 && item.results[0] >= 0)
    name_dtype(op.handle.schema(), item.arguments, values_[item.results[0]].dtype);
  if (op.facts.gives_number) {
    if (stack.back().isComplexDouble()) return give_up(Kind::data_dependent, op.name.str());
    item.number = numbers_++;
    item.given = stack.back().toScalar();
  }
  item.sized = dynamic && guess_sizes(item);
  const bool has_known_shape =
      gives_one(op, item.arguments) ||
      (op.facts.keeps_first_shape && !values_[item.slots.at(0).values.at(0)].dynamic);
  if ((dynamic && !item.sized) || (takes_dynamic(item) && !has_known_shape))
    for (LogValue result : item.results)  // but those that it was given to write to
      if (result >= 0 && values_[result].kind == LoggedTensor::Kind::result &&
          values_[result].item == items_.size())
        values_[result].dynamic = true;
  note_effects(item);
  items_.push_back(std::move(item));
}

bool OpLog::takes_dynamic(const LogItem& item) const {
  bool takes = false;
  each_argument(item, [&](LogValue value) { takes = takes || values_[value].dynamic; });
  return takes;
}

bool OpLog::gives_dynamic(const LogItem& item) const {
  return std::ranges::any_of(item.results,
                             [&](LogValue value) { return value >= 0 && values_[value].dynamic; });
}

bool OpLog::changes_input(const LogItem& item) const {
  return std::ranges::any_of(
      item.written, [&](LogValue value) { return is_input_memory(values_[value].memory); });
}

std::unique_ptr<const OpLog> OpLog::part(size_t first, size_t last,
                                         const std::vector<LogValue>& given) const {
  auto part = std::make_unique<OpLog>();
  part->items_.assign(items_.begin() + static_cast<ptrdiff_t>(first),
                      items_.begin() + static_cast<ptrdiff_t>(last));
  part->values_ = values_;
  part->ambients_ = ambients_;
  part->input_memory_ = input_memory_;
  part->numbers_ = numbers_;
  for (LoggedTensor& value : part->values_)
    if (value.kind == LoggedTensor::Kind::result && value.item >= first) value.item -= first;
  for (LogValue id : given) {
    LoggedTensor& value = part->values_[id];
    const at::Tensor example = without_contents(
        value.sizes, value.strides, at::TensorOptions(value.dtype).device(value.device));
    if (value.requires_grad) example.set_requires_grad(true);
    value.kind = LoggedTensor::Kind::input;
    value.impl = c10::weak_intrusive_ptr<c10::TensorImpl>(example.getIntrusivePtr());
    part->input_memory_[value.memory] = true;
    part->examples_.push_back(example);
  }
  return part;
}

}  // namespace smelt
