// How an op is followed: arguments looked up, op computed below the top key, results entered.
//
// What makes a log unfaithful is found here or by the caller who looks at Python: an argument of
// unknown origin; a result on the host or a shape that the contents decide; autograd state changed
// without an op (requires_grad_(), custom autograd functions), which shows as a requires_grad that
// is not the one left by the last op on the tensor. The op is computed all the same, and the first
// trouble kept.
//
// Rule for whoever changes this file: an op that can't be followed must be trouble, never left out.
#include "capture/dispatch/op_log.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>

#include "capture/dispatch/each_tensor.h"
#include "capture/dispatch/grad_ops.h"
#include "capture/dispatch/keys.h"
#include "capture/dispatch/opaque_call.h"

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

uint32_t version_of(const at::Tensor& tensor) {
  return tensor.is_inference() ? 0
                               : tensor.unsafeGetTensorImpl()->version_counter().current_version();
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
  read_state(value, tensor);
  const auto id = static_cast<LogValue>(values_.size() - 1);
  by_impl_[tensor.unsafeGetTensorImpl()] = id;
  if (value.memory != 0) in_memory_[value.memory].push_back(id);
  return id;
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
    give_up(Kind::memory, "a tensor, by code that was not seen,");
  else if (tensor.requires_grad() != known.requires_grad)
    give_up(Kind::autograd, "a change of requires_grad");
  else
    return true;
  return false;
}

// Whether `accept` takes the value and all that it is computed from.
template <class Accept>
bool OpLog::is_made_of(LogValue value, const Accept& accept) const {
  std::vector<LogValue> open{value};
  std::vector<bool> seen(values_.size());
  for (size_t i = 0; i < open.size(); ++i) {
    const LoggedTensor& known = values_[open[i]];
    if (known.dynamic || !accept(known)) return false;
    if (known.kind != LoggedTensor::Kind::result || known.item >= items_.size()) continue;
    each_argument(items_[known.item], [&](LogValue argument) {
      if (seen[argument]) return;
      seen[argument] = true;
      open.push_back(argument);
    });
  }
  return true;
}

bool OpLog::is_single(LogValue value) const {
  return is_made_of(
      value, [](const LoggedTensor& tensor) { return c10::multiply_integers(tensor.sizes) == 1; });
}

bool OpLog::is_whole(LogValue value) const {
  return is_made_of(value, [](const LoggedTensor& tensor) {
    return c10::isIntegralType(tensor.dtype, /*includeBool=*/true);
  });
}

bool OpLog::is_fixed(LogValue value) const {
  const auto gives_the_same = [](const LogItem& item) {
    return !item.random && item.scalars.empty() && item.written.empty() && !item.op->is_custom &&
           item.op != &opaque_op() && !is_grad_op(*item.op) &&
           item.op->name.str().find("empty") == std::string::npos;
  };
  const auto is_written = [&](int32_t memory) {
    return std::ranges::any_of(items_, [&](const LogItem& item) {
      return std::ranges::any_of(item.written,
                                 [&](LogValue to) { return values_[to].memory == memory; });
    });
  };
  return is_made_of(value, [&](const LoggedTensor& tensor) {
    if (tensor.kind == LoggedTensor::Kind::input || tensor.inner || !tensor.device.is_cpu() ||
        is_input_memory(tensor.memory))
      return false;
    if (tensor.kind == LoggedTensor::Kind::result &&
        (tensor.item >= items_.size() || !gives_the_same(items_[tensor.item])))
      return false;
    return !is_written(tensor.memory);
  });
}

bool OpLog::is_check(LogValue value, bool truth) const {
  const LoggedTensor& known = values_[value];
  if (known.kind != LoggedTensor::Kind::result || known.item >= items_.size()) return false;
  const std::string& name = items_[known.item].op->handle.schema().name();
  return truth ? name == "aten::all" || name == "aten::_is_all_true"
               : name == "aten::any" || name == "aten::_is_any_true";
}

void OpLog::check_inputs() {
  for (LogValue input : inputs_)
    if (const at::Tensor real = tensor(input); real.defined() && !check_state(input, real)) return;
}

void OpLog::rewind(size_t position) {
  std::erase_if(consumed_, [&](const Consumed& known) { return known.item >= position; });
  if (position >= items_.size()) return;
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

bool OpLog::follow(const OpInfo& op, const LogFacts& facts, const std::vector<c10::IValue>& stack,
                   size_t first) {
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
  const bool is_number = facts.gives_number && keeps_numbers_;
  if (!is_number && !facts.dynamic_shapes && facts.depends_on_contents(stack, first))
    return refuse(Kind::data_dependent, name);
  if (facts.sets_storage) return refuse(Kind::memory, name);
  if (differentiated && at::GradMode::is_enabled() && !facts.ignores_autograd &&
      c10::impl::tls_local_dispatch_key_set().excluded_.has(DispatchKey::AutogradFunctionality))
    return refuse(Kind::autograd, name + " below autograd");
  return true;
}

// The value of a tensor argument. Nothing: trouble.
std::optional<LogValue> OpLog::take_tensor(const OpInfo& op, const LogFacts& facts,
                                           const at::Tensor& tensor) {
  if (!tensor.defined()) return -1;
  if (const LogValue known = find(tensor); known >= 0) {
    if (!values_[known].dynamic)
      return check_state(known, tensor) ? std::optional(known) : std::nullopt;
    give_up(Kind::data_dependent, "the shape of an argument of " + op.name.str());
    return std::nullopt;
  }
  const bool number = tensor.unsafeGetTensorImpl()->is_wrapped_number();
  if (!number && !facts.lifts) {
    give_up(Kind::foreign_tensor, op.name.str());
    return std::nullopt;
  }
  const LogValue id = add_value(tensor, LoggedTensor::Kind::constant);
  c10::impl::ExcludeDispatchKeyGuard plain(kTopKey);
  at::NoGradGuard no_grad;
  values_[id].constant = number ? tensor : tensor.clone();
  return id;
}

bool OpLog::take_argument(LogItem& item, const LogFacts& facts, size_t index,
                          const c10::IValue& value) {
  LogSlot slot;
  slot.argument = static_cast<uint32_t>(index);
  const auto take = [&](const at::Tensor& tensor) {
    const std::optional<LogValue> id = take_tensor(*item.op, facts, tensor);
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

void OpLog::note_writes(LogItem& item, const LogFacts& facts) {
  const auto& schema = item.op->handle.schema().arguments();
  const std::vector<int>& silent = facts.silent_writes;
  const bool is_silent =
      !silent.empty() && (facts.silent_when < 0 || (item.arguments[facts.silent_when].isBool() &&
                                                    item.arguments[facts.silent_when].toBool()));
  for (const LogSlot& slot : item.slots) {
    const c10::AliasInfo* alias = schema[slot.argument].alias_info();
    const bool listed = is_silent && std::find(silent.begin(), silent.end(),
                                               static_cast<int>(slot.argument)) != silent.end();
    if (!(alias && alias->isWrite()) && !listed) continue;
    item.quiet = listed;
    for (LogValue value : slot.values) {
      if (value < 0) continue;
      item.written.push_back(value);
      item.quiet = item.quiet || values_[value].apart;
    }
  }
}

// A write shows in every tensor on that memory: version, and requires_grad of the bases of views.
void OpLog::read_written(const LogItem& item) {
  for (LogValue written : item.written) {
    const int32_t memory = values_[written].memory;
    const auto read = [&](LogValue id) {
      if (const at::Tensor real = tensor(id); real.defined()) read_state(values_[id], real);
    };
    if (memory == 0) read(written);
    for (LogValue id : in_memory_[memory]) read(id);
  }
}

bool OpLog::keep_results(LogItem& item, const std::vector<c10::IValue>& stack, size_t first) {
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
  read_written(item);
  if (!known) give_up(Kind::argument, item.op->name.str());
  return known;
}

namespace {

// Does it draw random numbers? A dropout that is switched off does not.
bool draws(const OpInfo& op, const std::vector<c10::IValue>& arguments) {
  if (!op.traits.random) return false;
  if (const int dropout = op.dropout_arg;
      dropout >= 0 && arguments[dropout].isDouble() && arguments[dropout].toDouble() == 0.0)
    return false;
  for (const char* name : {"train", "training"})
    if (const std::optional<int> at = op.handle.schema().argumentIndexWithName(name))
      return !arguments[*at].isBool() || arguments[*at].toBool();
  return true;
}

}  // namespace

namespace {

// A factory that was given no dtype took the default one. The log may be run under another, so it
// is written down.
void name_dtype(LogItem& item, const std::vector<LoggedTensor>& values) {
  if (!item.slots.empty() || item.results.size() != 1 || item.results[0] < 0) return;
  const auto dtype = item.op->handle.schema().argumentIndexWithName("dtype");
  if (dtype && item.arguments[*dtype].isNone())
    item.arguments[*dtype] = values[item.results[0]].dtype;
}

}  // namespace

void OpLog::call(const OpInfo& op, DispatchKeySet below, std::vector<c10::IValue>* stack) {
  const size_t first = stack->size() - op.arg_types.size();
  LogItem item;
  item.op = &op;
  const LogFacts& facts = log_facts(op);
  if (stand_ins_) item.scalars = take_stand_ins(*stand_ins_, op, facts, *stack, first);
  bool kept = follow(op, facts, *stack, first);
  const bool dynamic = facts.dynamic_shapes && facts.depends_on_contents(*stack, first);
  item.arguments.reserve(op.arg_types.size());
  for (size_t i = first; kept && i < stack->size(); ++i)
    kept = take_argument(item, facts, i - first, (*stack)[i]);
  if (kept) {
    note_writes(item, facts);
    item.ambient = ambient();
    item.random = draws(op, item.arguments);
    const LoggedTensor* written = item.written.empty() ? nullptr : &values_[item.written[0]];
    if (facts.resizes && written && is_input_memory(written->memory)) {
      give_up(Kind::memory, op.name.str());
      kept = false;
    }
    // torch.tensor() makes sure that it gives a leaf.
    if (facts.is_detach && written && written->kind == LoggedTensor::Kind::constant &&
        !written->requires_grad)
      kept = false;
  }
  {
    c10::impl::ExcludeDispatchKeyGuard inner(kTopKey);
    op.handle.redispatchBoxed(below, stack);
  }
  if (!kept) {
    read_written(item);
    return;
  }
  if (!keep_results(item, *stack, first)) return;
  if (c10::get_default_dtype() != caffe2::TypeMeta::Make<float>()) name_dtype(item, values_);
  if (facts.gives_number) {
    if (stack->back().isComplexDouble()) return give_up(Kind::data_dependent, op.name.str());
    item.number = numbers_++;
  }
  if (dynamic)
    for (LogValue result : item.results)
      if (result >= 0) values_[result].dynamic = true;
  items_.push_back(std::move(item));
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
    const at::Tensor example = at::empty_strided(
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
