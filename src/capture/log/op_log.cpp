#include "capture/log/op_log.h"

#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>

#include "aten/convert.h"
#include "aten/keys.h"
#include "aten/without_contents.h"
#include "log/own_ops.h"

namespace smelt {
namespace {

using Kind = OpTrouble::Kind;

thread_local OpLog* current_log = nullptr;

uint32_t version_of(const at::Tensor& tensor) {
  return tensor.is_inference() ? 0
                               : tensor.unsafeGetTensorImpl()->version_counter().current_version();
}

// As a graph would have it; nothing if no graph can (sparse, quantized, nested).
std::optional<TensorType> graph_type_of(const at::Tensor& tensor) {
  const std::optional<DType> dtype = to_dtype(tensor.scalar_type());
  if (!dtype || tensor.is_nested() || tensor.layout() != c10::kStrided) return std::nullopt;
  TensorType type;
  type.dtype = *dtype;
  type.device = to_device(tensor.device());
  type.sizes = to_sizes(tensor.sizes());
  type.strides = to_sizes(tensor.strides());
  if (tensor.has_storage()) type.offset = tensor.storage_offset();
  type.conj = tensor.is_conj();
  type.neg = tensor.is_neg();
  return type;
}

// For one more, so that adding it can't fail.
template <class T>
void make_room(std::vector<T>& list) {
  if (list.size() == list.capacity()) list.reserve(std::max<size_t>(16, 2 * list.size()));
}

// The call that made it is taken back, or is another's.
void forget(LoggedValue& value) {
  value.call = -1;
  value.inner = true;
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

void OpLog::read_state(LogValue value, const at::Tensor& tensor) {
  plain_.values[value].requires_grad = tensor.requires_grad();
  real_tensors_[value].version = version_of(tensor);
}

LogValue OpLog::add_value(const at::Tensor& tensor, LoggedValue::Kind kind) {
  LoggedValue value;
  value.kind = kind;
  value.memory = memory_.of(tensor);
  value.type = graph_type_of(tensor);
  value.requires_grad = tensor.requires_grad();
  if (kind == LoggedValue::Kind::result) value.call = static_cast<int32_t>(plain_.calls.size());
  RealTensor real(c10::weak_intrusive_ptr<c10::TensorImpl>(tensor.getIntrusivePtr()));
  real.device = tensor.device();
  real.version = real.first_version = version_of(tensor);
  const auto id = static_cast<LogValue>(plain_.values.size());
  memory_.add(value.memory, id);
  make_room(plain_.values);
  make_room(real_tensors_);
  plain_.values.push_back(std::move(value));
  real_tensors_.push_back(std::move(real));
  by_impl_[tensor.unsafeGetTensorImpl()] = id;
  return id;
}

LogValue OpLog::add_input(const at::Tensor& tensor) {
  if (const LogValue known = find(tensor); known >= 0) return known;
  const LogValue id = add_value(tensor, LoggedValue::Kind::input);
  LoggedValue& value = plain_.values[id];
  value.dual = tensor._fw_grad(0).defined();
  memory_.mark_input(value.memory);
  inputs_.push_back(id);
  return id;
}

LogValue OpLog::find(const at::Tensor& tensor) const {
  const auto it = by_impl_.find(tensor.unsafeGetTensorImpl());
  if (it != by_impl_.end()) return it->second;
  if (!open_hook_) return -1;
  const auto inner = inner_.find(tensor.unsafeGetTensorImpl());
  return inner == inner_.end() ? -1 : inner->second.value;
}

bool OpLog::check_state(LogValue value, const at::Tensor& tensor) {
  const LoggedValue& known = plain_.values[value];
  if (known.memory != 0 && version_of(tensor) != real_tensors_[value].version)
    give_up(Kind::memory, "a tensor by code that was not seen");
  else if (tensor.requires_grad() != known.requires_grad)
    give_up(Kind::autograd, "a change of requires_grad");
  else
    return true;
  return false;
}

void OpLog::check_inputs() {
  for (LogValue input : inputs_)
    if (const at::Tensor real = tensor(input); real.defined() && !check_state(input, real)) return;
}

void OpLog::forget_results_behind(size_t position) {
  for (size_t id = plain_.values.size(); id-- > 0;) {
    LoggedValue& value = plain_.values[id];
    if (value.call >= static_cast<int32_t>(position))
      forget(value);
    else if (value.call >= 0)
      break;  // they stand in the order of their calls
  }
}

void OpLog::rewind(size_t position) {
  nodes_.rewind(position, [&](LogValue value) {
    return plain_.value(value).call >= static_cast<int32_t>(position);
  });
  if (position >= plain_.calls.size()) return;
  if (first_effect_ >= position) first_effect_ = SIZE_MAX;
  plain_.calls.resize(position);
  real_calls_.resize(position);
  std::erase_if(inner_, [&](const auto& known) { return known.second.call >= position; });
  forget_results_behind(position);
  std::erase_if(by_impl_, [&](const auto& known) { return plain_.value(known.second).inner; });
}

// -- ambient

int32_t OpLog::ambient() {
  const int32_t place = ambients_.current();
  if (static_cast<size_t>(place) == plain_.ambients.size()) {
    const OpAmbient& now = ambients_.all().back();
    plain_.ambients.push_back({now.grad, now.inference});
  }
  return place;
}

OpenCall OpLog::open(const OpInfo& op) {
  OpenCall call;
  call.real.op = &op;
  call.plain.op = op.name;
  call.plain.effect = op.traits.effect;
  return call;
}

void OpLog::close(OpenCall call) {
  make_room(plain_.calls);
  make_room(real_calls_);
  plain_.calls.push_back(std::move(call.plain));
  real_calls_.push_back(std::move(call.real));
}

// A copy of the calls from there on.
InnerCalls OpLog::cut(size_t first) const {
  return {{plain_.calls.begin() + static_cast<ptrdiff_t>(first), plain_.calls.end()},
          {real_calls_.begin() + static_cast<ptrdiff_t>(first), real_calls_.end()}};
}

void OpLog::begin_recomputed() {
  if (recomputed_depth_++ > 0) return;  // the outer one computes all of it again
  ++recomputed_pieces_;
  recomputed_from_ = plain_.calls.size();
}

void OpLog::end_recomputed(bool keeps_random_state) {
  if (--recomputed_depth_ > 0) return;
  for (size_t i = recomputed_from_; i < plain_.calls.size(); ++i) {
    LoggedCall& call = plain_.calls[i];
    if (call.has_effects || changes_input(call) || call.op == own_ops::kOpaqueCall ||
        (call.random && !keeps_random_state))
      return give_up(Kind::autograd, "a checkpoint that does something twice");
    call.recomputed = recomputed_pieces_;
  }
}

// Of the call that comes next.
void OpLog::note_effects(const LoggedCall& call) {
  if (call.has_effects) first_effect_ = std::min(first_effect_, plain_.calls.size());
}

bool OpLog::changes_input(const LoggedCall& call) const {
  return std::ranges::any_of(
      call.written, [&](LogValue value) { return is_input_memory(plain_.value(value).memory); });
}

std::unique_ptr<const OpLog> OpLog::part(size_t first, size_t last,
                                         const std::vector<LogValue>& given) const {
  auto part = std::make_unique<OpLog>();
  const auto begin = static_cast<ptrdiff_t>(first), end = static_cast<ptrdiff_t>(last);
  part->plain_.calls.assign(plain_.calls.begin() + begin, plain_.calls.begin() + end);
  part->real_calls_.assign(real_calls_.begin() + begin, real_calls_.begin() + end);
  part->plain_.values = plain_.values;
  part->real_tensors_ = real_tensors_;
  part->plain_.ambients = plain_.ambients;
  part->ambients_ = ambients_;
  part->memory_ = memory_.without_storages();
  part->numbers_ = numbers_;
  for (LoggedValue& value : part->plain_.values) {
    if (value.kind != LoggedValue::Kind::result || value.inner) continue;
    value.call -= static_cast<int32_t>(first);
    if (value.call < 0 || value.call >= static_cast<int32_t>(last - first)) forget(value);
  }
  for (LogValue id : given) {
    LoggedValue& value = part->plain_.values[id];
    if (!value.type) throw Error("a tensor that no graph takes is handed from stage to stage");
    if (is_resized(id))
      throw Error("a tensor that gets other sizes in place is handed from stage to stage");
    const at::Tensor example = without_contents(*value.type);
    if (value.requires_grad) example.set_requires_grad(true);
    value.kind = LoggedValue::Kind::input;
    value.call = -1;
    value.inner = false;
    part->real_tensors_[id].impl =
        c10::weak_intrusive_ptr<c10::TensorImpl>(example.getIntrusivePtr());
    part->memory_.mark_input(value.memory);
    part->examples_.push_back(example);
  }
  return part;
}

}  // namespace smelt
