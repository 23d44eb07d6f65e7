#include "bridge/size_shadow.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/lift_fresh.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>

#include "aten/boxed_call.h"
#include "aten/convert.h"
#include "aten/keys.h"
#include "aten/op_ambient.h"
#include "aten/size_node.h"
#include "aten/without_contents.h"
#include "capture/dispatch/record_sized.h"
#include "log/own_ops.h"
#include "ops/facts.h"

namespace smelt {
namespace {

const TensorType& known_type(const OpLog& log, LogValue value) {
  const std::optional<TensorType>& type = log.plain().value(value).type;
  if (!type) throw Error("a tensor that no graph takes");
  return *type;
}

at::TensorOptions options_of(const TensorType& type) {
  return at::dtype(to_scalar_type(type.dtype)).device(to_c10(type.device));
}

RecorderOptions options_of(std::function<std::string()> where) {
  RecorderOptions options;
  options.only_sizes = true;
  options.where = std::move(where);
  return options;
}

// PyTorch's errors go on with where they were raised.
std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// Of a call of smelt::size.
size_t counted_dim(const LoggedCall& call) {
  return static_cast<size_t>(call.args.at(1).get<Size>().known());
}

// What there is to warn of was said when the ops were computed.
class NoWarnings final : public c10::WarningHandler {
 public:
  void process(const c10::Warning&) override {}
};

// Without tensors or sizes that the sizes of its results could depend on, or without results.
bool gives_what_it_gives(const OpInfo& op, const LoggedCall& call) {
  const c10::FunctionSchema& schema = op.handle.schema();
  if (std::ranges::any_of(schema.arguments(), [](const c10::Argument& argument) {
        return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
      }))
    return false;
  if (schema.returns().empty()) return true;
  bool takes_tensors = false;
  for (const Arg& arg : call.args) each_tensor_of(arg, [&](LogValue) { takes_tensors = true; });
  return !takes_tensors && call.takes.empty();
}

// Sizes do not depend on autograd.
OpAmbient without_autograd(OpAmbient ambient) {
  ambient.grad = ambient.inference = false;
  return ambient;
}

}  // namespace

SizeShadow::SizeShadow()
    : recorder_(std::make_shared<Recorder>(options_of([this] { return asking(); }))) {}

// "model.py:12 (aten::split.Tensor)"
std::string SizeShadow::asking() const {
  const std::string line = where_ ? where_() : std::string();
  return followed_op_ == nullptr ? line : line + " (" + followed_op_->name.str() + ")";
}

SizeShadow::~SizeShadow() { recorder_->close(); }

Decision SizeShadow::follow(const OpLog& log, const SizeOf& size_of) {
  const std::vector<LoggedCall>& calls = log.plain().calls;
  // Some were taken back: those of a custom function, which became a call of it.
  while (!followed_.empty() && (followed_.size() > calls.size() ||
                                !(followed_.back() == mark_of(log, followed_.size() - 1))))
    followed_.pop_back();
  if (!possible_ || followed_.size() == calls.size()) return possible_;
  try {
    const RecordingScope scope(recorder_, RecordingScope::Part{});
    NoWarnings none;
    const c10::WarningUtils::WarningHandlerGuard quiet(&none);
    recorder_->begin_replay();
    OpAmbientScope ambient(OpAmbient::current());
    ambient_ = &ambient;
    while (followed_.size() < calls.size()) {
      const size_t next = followed_.size();
      enter(log,
            {calls[next], log.real_calls()[next],
             next + 1 < calls.size() ? &calls[next + 1] : nullptr},
            size_of);
      followed_.push_back(mark_of(log, next));
    }
  } catch (const std::exception& error) {
    possible_ = Decision::forbid(followed_op_ == nullptr ? first_line(error.what())
                                                         : followed_op_->name.str() + " (" +
                                                               first_line(error.what()) + ")");
    tensors_.clear();
  }
  followed_op_ = nullptr;
  return possible_;
}

SizeShadow::Mark SizeShadow::mark_of(const OpLog& log, size_t call) {
  const std::vector<LogValue>& results = log.plain().calls[call].results;
  const auto made = std::ranges::find_if(results, [](LogValue value) { return value >= 0; });
  return {log.real_calls()[call].op, made == results.end() ? -1 : *made};
}

void SizeShadow::enter(const OpLog& log, const Followed& one, const SizeOf& size_of) {
  ambient_->enter(without_autograd(log.ambients()[one.call.ambient]));
  followed_op_ = one.real.op;
  follow(log, one, size_of);
}

// Nobody else sees what its ops make; its results have the sizes of what its forward gave.
void SizeShadow::follow_function(const OpLog& log, const Followed& one, const SizeOf& size_of) {
  const std::shared_ptr<const LogFunction> function = one.real.function;
  const InnerCalls& inner = function->calls;
  for (size_t i = 0; i < inner.plain.size(); ++i)
    enter(
        log,
        {inner.plain[i], inner.real[i], i + 1 < inner.plain.size() ? &inner.plain[i + 1] : nullptr},
        size_of);
  for (size_t i = 0; i < one.call.results.size(); ++i)
    if (one.call.results[i] >= 0)
      tensors_[one.call.results[i]] = tensor(log, function->outputs.at(i));
}

void SizeShadow::follow(const OpLog& log, const Followed& one, const SizeOf& size_of) {
  const CallLog& plain = log.plain();
  const LoggedCall& call = one.call;
  if (call.op == own_ops::kOpaqueCall && one.real.function)
    return follow_function(log, one, size_of);
  if (call.op == own_ops::kOpaqueCall) throw Error("a call of Python code among its ops");
  if (facts_of(call.op).reads_lengths)
    throw Error(call.op.str() + ", whose result has a size that contents decide");
  if (plain.gives_dynamic(call)) return;  // nobody asks for its sizes
  if (plain.takes_dynamic(call)) return take_known(log, call);
  if (call.op == own_ops::kSize) {
    const Sizes sizes = to_sizes(tensor(log, first_argument(call)).sym_sizes());
    late_.push_back({sizes.at(counted_dim(call)), call.number});
    return;
  }
  if (call.op == own_ops::kBackward || call.op == own_ops::kGrad) return take_gradients(log, call);
  if (call.op == own_ops::kData) {
    tensors_[call.results.at(0)] = tensor(log, first_argument(call));
    return;
  }
  if (own_ops::is_own(call.op) || call.number >= 0) return;  // they make no tensors
  if (own_ops::is_custom(call.op) && gives_what_it_gives(*one.real.op, call))
    return take_fixed(log, call);
  this->call(log, one, size_of);
}

// A gradient has the sizes of what it is the gradient of.
void SizeShadow::take_gradients(const OpLog& log, const LoggedCall& call) {
  size_t next = 0;
  each_tensor_of(call.args.at(own_ops::kLeaves), [&](LogValue leaf) {
    const LogValue grad = next < call.results.size() ? call.results[next] : -1;
    ++next;
    if (grad >= 0) tensors_[grad] = at::empty_like(tensor(log, leaf));
  });
}

// Of tensors whose sizes contents decide, but with known ones itself: one element, or those of the
// first argument.
void SizeShadow::take_known(const OpLog& log, const LoggedCall& call) {
  for (const LogValue value : call.results) {
    if (value < 0 || tensors_.contains(value)) continue;
    const TensorType& type = known_type(log, value);
    const at::TensorOptions options = options_of(type);
    if (facts_of(call.op).keeps_first_shape)
      tensors_[value] = at::empty_like(tensor(log, first_argument(call)), options);
    else
      tensors_[value] = at::empty(known_sizes(type.sizes), options);
  }
}

at::Tensor SizeShadow::tensor(const OpLog& log, LogValue value) {
  if (const auto known = tensors_.find(value); known != tensors_.end()) return known->second;
  const LoggedValue& logged = log.plain().value(value);
  at::Tensor made;
  if (logged.kind == LoggedValue::Kind::constant) {
    const at::Tensor& constant = log.real_tensors()[static_cast<size_t>(value)].constant;
    if (constant.unsafeGetTensorImpl()->is_wrapped_number()) return constant;
    made = at::lift_fresh(constant);
  } else if (logged.kind == LoggedValue::Kind::input) {
    const TensorType& type = known_type(log, value);
    at::Tensor example;
    {
      const c10::impl::ExcludeDispatchKeyGuard plain(kTopKey);  // it is no op of the recording
      example = without_contents(type);
    }
    const auto dims = inputs_.find(value);
    made = recorder_->add_sized_argument(example,
                                         dims == inputs_.end() ? SymbolicDims() : dims->second);
  } else {
    throw Error("a tensor of unknown size");
  }
  return tensors_.emplace(value, std::move(made)).first->second;
}

// Nobody has to know what the op does: its results are what they are in each run.
void SizeShadow::take_fixed(const OpLog& log, const LoggedCall& call) {
  for (const LogValue value : call.results) {
    if (value < 0 || tensors_.contains(value)) continue;
    const TensorType& type = known_type(log, value);
    const at::TensorOptions options = options_of(type);
    tensors_[value] =
        at::empty_strided(known_sizes(type.sizes), known_sizes(type.strides), options);
  }
}

void SizeShadow::compute(const OpLog& log, const Followed& one, std::vector<c10::IValue>& stack) {
  const CallLog& plain = log.plain();
  const LoggedCall& call = one.call;
  const c10::OperatorHandle& handle = one.real.op->handle;
  const auto sizes_now = [&](LogValue value) {
    return known_sizes(plain.value(value).type->sizes);
  };
  if (call.counts) {
    SMELT_CHECK(one.next != nullptr, "nobody reads the size that is counted");
    const size_t dim = counted_dim(*one.next);
    const Size count = recorder_->add_symbol(sizes_now(call.results.at(0)).at(dim));
    record_counted(handle, recorder_->size_as_number(count).toSymInt(), stack);
  } else if (call.sized) {
    std::vector<std::vector<int64_t>> sizes;
    for (const LogValue value : call.results) sizes.push_back(sizes_now(value));
    record_sized(handle, sizes, stack);
  } else {
    handle.callBoxed(&stack);
  }
}

void SizeShadow::call(const OpLog& log, const Followed& one, const SizeOf& size_of) {
  const auto& [call, real, next_call] = one;
  const ArgReader reader{.tensor = [&](Ref ref) { return tensor(log, ref.id); },
                         .opaque = [&](Opaque opaque) { return real.opaque[opaque.index]; },
                         .size = [](const Size& size) { return size.known(); }};
  std::vector<c10::IValue> stack;
  for (size_t i = 0; i < call.args.size(); ++i)
    stack.push_back(to_ivalue(call.args[i], real.op->arg_types[i], reader));
  for (const TakenNumber& taken : call.takes) {
    const std::optional<Size> size = size_of(taken.id);
    if (!size) continue;  // what it is now will do
    const at::Scalar number = recorder_->size_as_number(*size);
    c10::IValue& argument = stack[taken.argument];
    if (taken.is_tensor) {
      argument = recorder_->wrapped(number);
    } else if (taken.element < 0) {
      argument = number;
    } else if (argument.isIntList() || argument.isSymIntList()) {
      argument = with_size(argument, static_cast<size_t>(taken.element), number.toSymInt());
    }
  }
  compute(log, one, stack);
  size_t next = 0;
  const auto keep = [&](const at::Tensor& made) {
    const LogValue value = next < call.results.size() ? call.results[next] : -1;
    ++next;
    if (value < 0 || !made.defined()) return;
    const bool is_new = tensors_.emplace(value, made).second;
    if (!is_new) return;
    const std::optional<TensorType>& type = log.plain().value(value).type;
    if (!type) throw Error("a tensor that no graph takes");
    const Sizes sizes = to_sizes(made.sym_sizes());
    for (size_t i = 0; i < std::max(sizes.size(), type->sizes.size()); ++i)
      if (sizes.size() != type->sizes.size() || !type->sizes[i].is(symbols().hint(sizes[i])))
        throw Error("the size of a result of " + call.op.str() + " is not what it should be");
  };
  take_results(stack, keep);
  if (next != call.results.size()) throw Error(call.op.str() + " gives another number of results");
}

std::optional<TensorType> SizeShadow::type_of(const OpLog& log, LogValue value) const {
  const auto known = tensors_.find(value);
  std::optional<TensorType> type = log.plain().value(value).type;
  if (known == tensors_.end() || !type) return std::nullopt;
  type->sizes = to_sizes(known->second.sym_sizes());
  type->strides = to_sizes(known->second.sym_strides());
  return type;
}

std::optional<Sizes> SizeShadow::sizes_of(const OpLog& log, LogValue value) const {
  if (const auto known = tensors_.find(value); known != tensors_.end())
    return to_sizes(known->second.sym_sizes());
  const LoggedValue& logged = log.plain().value(value);
  if (logged.kind == LoggedValue::Kind::result || !logged.type || !possible_) return std::nullopt;
  Sizes sizes = logged.type->sizes;
  if (const auto dims = inputs_.find(value); dims != inputs_.end())
    for (const auto& [dim, size] : dims->second) sizes[static_cast<size_t>(dim)] = size;
  return sizes;
}

}  // namespace smelt
