#include "bridge/size_shadow.h"

#include <ATen/core/List.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/lift_fresh.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "aten/boxed_call.h"
#include "aten/convert.h"
#include "aten/keys.h"
#include "aten/op_ambient.h"
#include "aten/size_node.h"
#include "aten/without_contents.h"
#include "capture/log/grad_ops.h"
#include "capture/log/opaque_call.h"

namespace smelt {
namespace {

RecorderOptions options_of(const std::function<std::string()>* where) {
  RecorderOptions options;
  options.only_sizes = true;
  options.where = [where] { return *where ? (*where)() : std::string(); };
  return options;
}

// Sizes do not depend on autograd.
OpAmbient without_autograd(OpAmbient ambient) {
  ambient.grad = ambient.inference = false;
  return ambient;
}

}  // namespace

SizeShadow::SizeShadow() : recorder_(std::make_shared<Recorder>(options_of(&where_))) {}

SizeShadow::~SizeShadow() { recorder_->close(); }

Decision SizeShadow::follow(const OpLog& log, const SizeOf& size_of) {
  if (!possible_ || followed_ == log.items().size()) return possible_;
  try {
    if (followed_ > log.items().size()) throw Error("some of its ops were taken back");
    const RecordingScope scope(recorder_, RecordingScope::Part{});
    recorder_->begin_replay();
    OpAmbientScope ambient(OpAmbient::current());
    for (; followed_ < log.items().size(); ++followed_) {
      const LogItem& item = log.items()[followed_];
      ambient.enter(without_autograd(log.ambients()[item.ambient]));
      follow(log, item, size_of);
    }
  } catch (const std::exception& error) {
    possible_ = Decision::forbid(error.what());
    tensors_.clear();
  }
  return possible_;
}

void SizeShadow::follow(const OpLog& log, const LogItem& item, const SizeOf& size_of) {
  const OpInfo& op = *item.op;
  if (&op == &opaque_op()) throw Error("a call of Python code among its ops");
  if (item.sized || op.facts.reads_lengths || log.gives_dynamic(item) || log.takes_dynamic(item))
    throw Error(op.name.str() + ", whose result has a size that contents decide");
  if (&op == &backward_op() || &op == &grad_op()) return take_gradients(log, item, 2);
  if (&op == &data_op()) {
    tensors_[item.results.at(0)] = tensor(log, item.slots.at(0).values.at(0));
    return;
  }
  if (is_own_op(op) || item.number >= 0) return;  // they make no tensors
  call(log, item, size_of);
}

// A gradient has the sizes of what it is the gradient of.
void SizeShadow::take_gradients(const OpLog& log, const LogItem& item, uint32_t argument) {
  for (const LogSlot& slot : item.slots)
    if (slot.argument == argument)
      for (size_t i = 0; i < slot.values.size() && i < item.results.size(); ++i)
        if (item.results[i] >= 0)
          tensors_[item.results[i]] = at::empty_like(tensor(log, slot.values[i]));
}

at::Tensor SizeShadow::tensor(const OpLog& log, LogValue value) {
  if (const auto known = tensors_.find(value); known != tensors_.end()) return known->second;
  const LoggedTensor& logged = log.values()[static_cast<size_t>(value)];
  at::Tensor made;
  if (logged.kind == LoggedTensor::Kind::constant) {
    if (logged.constant.unsafeGetTensorImpl()->is_wrapped_number()) return logged.constant;
    made = at::lift_fresh(logged.constant);
  } else if (logged.kind == LoggedTensor::Kind::input) {
    if (!logged.type()) throw Error("a tensor that no graph takes");
    at::Tensor example;
    {
      const c10::impl::ExcludeDispatchKeyGuard plain(kTopKey);  // it is no op of the recording
      example = without_contents(logged.sizes, logged.strides,
                                 at::dtype(logged.dtype).device(logged.device));
    }
    const auto dims = inputs_.find(value);
    made = recorder_->add_sized_argument(example,
                                         dims == inputs_.end() ? SymbolicDims() : dims->second);
  } else {
    throw Error("a tensor of unknown size");
  }
  return tensors_.emplace(value, std::move(made)).first->second;
}

void SizeShadow::call(const OpLog& log, const LogItem& item, const SizeOf& size_of) {
  std::vector<c10::IValue> stack = item.arguments;
  for (const LogScalar& scalar : item.scalars) {
    const std::optional<Size> size = size_of(scalar.id);
    if (!size) continue;  // what it is now will do
    const at::Scalar number = recorder_->size_as_number(*size);
    c10::IValue& argument = stack[scalar.argument];
    if (scalar.is_tensor) {
      argument = recorder_->wrapped(number);
    } else if (scalar.element < 0) {
      argument = number;
    } else if (argument.isIntList() || argument.isSymIntList()) {
      argument = with_size(argument, static_cast<size_t>(scalar.element), number.toSymInt());
    }
  }
  for (const LogSlot& slot : item.slots) {
    c10::IValue& argument = stack[slot.argument];
    std::vector<at::Tensor> list;
    for (const LogValue value : slot.values)
      list.push_back(value < 0 ? at::Tensor() : tensor(log, value));
    if (!slot.is_list) {
      argument = list.at(0);
    } else if (slot.is_optional_list) {
      c10::List<std::optional<at::Tensor>> optional;
      for (at::Tensor& one : list)
        optional.push_back(one.defined() ? std::optional(std::move(one)) : std::nullopt);
      argument = std::move(optional);
    } else {
      argument = std::move(list);
    }
  }
  item.op->handle.callBoxed(&stack);
  size_t next = 0;
  const auto keep = [&](const at::Tensor& made) {
    const LogValue value = next < item.results.size() ? item.results[next] : -1;
    ++next;
    if (value < 0 || !made.defined()) return;
    const bool is_new = tensors_.emplace(value, made).second;
    if (!is_new) return;
    const LoggedTensor& real = log.values()[static_cast<size_t>(value)];
    const Sizes sizes = to_sizes(made.sym_sizes());
    for (size_t i = 0; i < std::max(sizes.size(), real.sizes.size()); ++i)
      if (sizes.size() != real.sizes.size() || symbols().hint(sizes[i]) != real.sizes[i])
        throw Error("the size of a result of " + item.op->name.str() + " is not what it should be");
  };
  take_results(stack, keep);
  if (next != item.results.size())
    throw Error(item.op->name.str() + " gives another number of results");
}

std::optional<Sizes> SizeShadow::sizes_of(const OpLog& log, LogValue value) const {
  if (const auto known = tensors_.find(value); known != tensors_.end())
    return to_sizes(known->second.sym_sizes());
  const LoggedTensor& logged = log.values()[static_cast<size_t>(value)];
  if (logged.kind == LoggedTensor::Kind::result || !possible_) return std::nullopt;
  Sizes sizes = to_sizes(logged.sizes);
  if (const auto dims = inputs_.find(value); dims != inputs_.end())
    for (const auto& [dim, size] : dims->second) sizes[static_cast<size_t>(dim)] = size;
  return sizes;
}

}  // namespace smelt
