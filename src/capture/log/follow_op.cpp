// How an op is followed: arguments looked up, op computed below the top key, results entered.
//
// What makes a log unfaithful is found here or by the caller who looks at Python: an argument of
// unknown origin; a result on the host or a shape that the contents decide; autograd state changed
// without an op (requires_grad_(), custom autograd functions), which shows as a requires_grad that
// is not the one left by the last op on the tensor. The op is computed all the same, and the first
// trouble kept.
//
// Rule for whoever changes this file: an op that can't be followed must be trouble, never left out.
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>

#include "aten/convert.h"
#include "aten/each_tensor.h"
#include "aten/find_op.h"
#include "aten/keys.h"
#include "aten/name_dtype.h"
#include "aten/transforms.h"
#include "capture/log/op_log.h"

namespace smelt {
namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;
using Kind = OpTrouble::Kind;

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

// The op is computed in any case, exactly once: what goes wrong in writing it down is trouble.
void OpLog::call(const OpInfo& op, DispatchKeySet below, std::vector<c10::IValue>* stack) {
  const size_t first = stack->size() - op.arg_types.size();
  OpenCall call = open(op);
  bool kept = false, dynamic = false;
  keep_account([&] { kept = take_call(call, *stack, first, &dynamic); });
  if (op.may_have_effects) failed_effect_ = plain_.calls.size();
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
      take_results(std::move(call), *stack, first, dynamic);
    else
      read_written(call.plain);
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

bool OpLog::follow(const OpInfo& op, const std::vector<c10::IValue>& stack, size_t first) {
  const std::string& name = op.name.str();
  const auto refuse = [&](Kind kind, std::string detail) {
    give_up(kind, std::move(detail));
    return false;
  };
  if (torch::autograd::get_current_graph_task_id() != -1 && !open_hook_ && !follows_pass_)
    return refuse(Kind::autograd, "a backward pass");
  if (c10::impl::dispatch_mode_enabled()) return refuse(Kind::subclass, "TorchDispatchMode");
  if (is_under_transform()) return refuse(Kind::transform, name);
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

// A tensor argument. Nothing: trouble.
std::optional<Arg> OpLog::take_tensor(const OpInfo& op, const at::Tensor& tensor) {
  if (!tensor.defined()) return Arg(None{});
  if (const LogValue known = find(tensor); known >= 0) {
    if (!plain_.value(known).dynamic || (op.log.takes_any_shape && keeps_numbers_))
      return check_state(known, tensor) ? std::optional(Arg(Ref{known})) : std::nullopt;
    give_up(Kind::data_dependent, "the shape of an argument of " + op.name.str());
    return std::nullopt;
  }
  const bool number = tensor.unsafeGetTensorImpl()->is_wrapped_number();
  if (!number && !op.facts.lifts) {
    give_up(Kind::foreign_tensor, op.name.str());
    return std::nullopt;
  }
  const LogValue id = add_value(tensor, LoggedValue::Kind::constant);
  c10::impl::ExcludeDispatchKeyGuard plain(kTopKey);
  at::NoGradGuard no_grad;
  real_tensors_[id].constant = number ? tensor : tensor.clone();
  return Arg(Ref{id});
}

// The one that comes next.
bool OpLog::take_argument(OpenCall& call, const c10::IValue& value) {
  const OpInfo& op = *call.real.op;
  std::vector<Arg>& args = call.plain.args;
  const auto index = static_cast<uint32_t>(args.size());
  const auto take = [&](const at::Tensor& tensor, std::vector<Arg>& into) {
    std::optional<Arg> arg = take_tensor(op, tensor);
    if (arg) into.push_back(std::move(*arg));
    return arg.has_value();
  };
  if (value.isNone()) {
    args.emplace_back();
  } else if (value.isTensor()) {
    const bool is_number = std::ranges::any_of(call.plain.takes, [&](const TakenNumber& number) {
      return number.is_tensor && number.argument == index;
    });
    if (!is_number) return take(value.toTensor(), args);
    args.push_back(number_arg(scalar_in(value.toTensor())));
  } else if (value.isTensorList()) {
    ArgList list;
    for (const at::Tensor& tensor : value.toTensorVector())
      if (!take(tensor, list)) return false;
    args.emplace_back(std::move(list));
  } else if (value.isOptionalTensorList()) {
    ArgList list;
    for (const auto& tensor : value.toOptionalTensorVector())
      if (!take(tensor.value_or(at::Tensor()), list)) return false;
    args.emplace_back(std::move(list));
  } else if (value.isDevice()) {
    args.emplace_back(to_device(value.toDevice()));  // the current one stays the current one
  } else if (can_keep(value)) {
    const auto keep = [&](const c10::IValue& object) {
      call.real.opaque.push_back(object);
      return Arg(Opaque{static_cast<int32_t>(call.real.opaque.size() - 1)});
    };
    args.push_back(to_arg(value, op.arg_types[index], {.tensor = {}, .opaque = keep}));
  } else {
    give_up(value.isStorage() ? Kind::memory : Kind::argument, op.name.str());
    return false;
  }
  return true;
}

bool OpLog::take_arguments(OpenCall& call, std::initializer_list<c10::IValue> values) {
  return std::ranges::all_of(values,
                             [&](const c10::IValue& value) { return take_argument(call, value); });
}

void OpLog::note_writes(OpenCall& call) const {
  const OpInfo& op = *call.real.op;
  const auto& schema = op.handle.schema().arguments();
  const std::vector<int>& silent = op.log.silent_writes;
  const std::vector<Arg>& args = call.plain.args;
  const int when = op.log.silent_when;
  const bool is_silent =
      !silent.empty() && (when < 0 || (args[when].is<bool>() && args[when].get<bool>()));
  for (size_t i = 0; i < args.size(); ++i) {
    const c10::AliasInfo* alias = schema[i].alias_info();
    const bool listed =
        is_silent && std::find(silent.begin(), silent.end(), static_cast<int>(i)) != silent.end();
    if (!(alias && alias->isWrite()) && !listed) continue;
    each_tensor_of(args[i], [&](LogValue value) {
      const bool changes = !op.facts.detaches || plain_.value(value).requires_grad;
      if (changes) call.plain.written.push_back(value);
    });
  }
}

// unsqueeze_() and such. A result has the type with which it was made.
void OpLog::note_sizes(LogValue value, const at::Tensor& tensor) {
  const std::optional<TensorType>& type = plain_.value(value).type;
  if (!type || tensor.layout() != c10::kStrided) return;
  RealTensor& real = real_tensors_[value];
  real.resized = real.resized || to_sizes(tensor.sizes()) != type->sizes ||
                 to_sizes(tensor.strides()) != type->strides;
}

// A write shows in every tensor on that memory: version, and requires_grad of the bases of views.
void OpLog::read_written(LoggedCall& call) {
  for (LogValue written : call.written) {
    const int32_t memory = plain_.value(written).memory;
    const auto read = [&](LogValue id) {
      const at::Tensor real = tensor(id);
      if (!real.defined()) return;
      const uint32_t before = real_tensors_[id].version;
      read_state(id, real);
      note_sizes(id, real);
      const uint32_t now = real_tensors_[id].version;
      if (now > before) call.rises.push_back({id, now - before});
    };
    if (memory == 0) read(written);
    for (LogValue id : memory_.values_on(memory)) read(id);
  }
}

bool OpLog::keep_results(LoggedCall& call, const std::vector<c10::IValue>& stack, size_t first) {
  read_written(call);
  // A view of what `.data` gave.
  const auto shows_apart = [&](int32_t memory) {
    if (memory == 0 || call.args.empty()) return false;
    LogValue source = -1;
    each_tensor_of(call.args[0], [&](LogValue value) { source = source < 0 ? value : source; });
    return source >= 0 && plain_.value(source).apart && plain_.value(source).memory == memory;
  };
  bool known = true;
  const auto keep = [&](const at::Tensor& tensor) {
    if (!tensor.defined()) {
      call.results.push_back(-1);
      return;
    }
    LogValue id = find(tensor);
    if (id < 0) {
      id = add_value(tensor, LoggedValue::Kind::result);
      plain_.values[id].apart = shows_apart(plain_.values[id].memory);
    } else if (is_argument(call, id) ||
               std::find(call.results.begin(), call.results.end(), id) != call.results.end())
      read_state(id, tensor);
    else
      known = false;  // a tensor that the op had kept
    call.results.push_back(id);
  };
  for (size_t i = first; i < stack.size(); ++i) {
    if (stack[i].isTensor())
      keep(stack[i].toTensor());
    else if (stack[i].isTensorList())
      for (const at::Tensor& tensor : stack[i].toTensorVector()) keep(tensor);
    else if (!stack[i].isScalar() && !stack[i].isNone() && !stack[i].isIntList())
      known = false;
  }
  if (known) return true;
  give_up(Kind::argument, call.op.str());
  forget_results_behind(plain_.calls.size());
  return false;
}

// What an op is about to be called with. False: it can't be written down.
bool OpLog::take_call(OpenCall& call, std::vector<c10::IValue>& stack, size_t first,
                      bool* dynamic) {
  const OpInfo& op = *call.real.op;
  if (stand_ins_) call.plain.takes = take_stand_ins(*stand_ins_, op, stack, first);
  bool kept = follow(op, stack, first);
  *dynamic =
      (op.log.dynamic_shapes && depends_on_contents(op, stack, first)) || has_unknown_shapes(op);
  call.plain.args.reserve(op.arg_types.size());
  for (size_t i = first; kept && i < stack.size(); ++i) kept = take_argument(call, stack[i]);
  if (!kept) return false;
  note_writes(call);
  call.plain.ambient = ambient();
  call.plain.random = draws(op, call.plain.args);
  call.plain.has_effects = op.may_have_effects;
  const LoggedValue* written =
      call.plain.written.empty() ? nullptr : &plain_.value(call.plain.written[0]);
  if (op.facts.resizes && written && is_input_memory(written->memory)) {
    give_up(Kind::memory, op.name.str());
    return false;
  }
  // torch.tensor() makes sure that it gives a leaf.
  const LogValue source = first_argument(call.plain);
  return !(op.facts.detaches && !written && source >= 0 &&
           plain_.value(source).kind == LoggedValue::Kind::constant);
}

// What forward-mode autograd has where there is no tangent: zeros without memory. An op that gives
// such is written down as one that makes zeros; whatever it took, it is nothing else.
bool OpLog::take_zeros(OpenCall& open, const std::vector<c10::IValue>& stack, size_t first) {
  bool is_zero = false;
  for (size_t i = first; i < stack.size(); ++i)
    each_tensor(stack[i],
                [&](const at::Tensor& one) { is_zero = is_zero || one._is_zerotensor(); });
  if (!is_zero) return true;
  if (stack.size() != first + 1 || !stack.back().isTensor() || !open.plain.written.empty() ||
      !open.plain.takes.empty() || !has_fixed_sizes_ || stack.back().toTensor().requires_grad()) {
    give_up(Kind::transform, "zeros that stand for no tangent, of " + open.plain.op.str());
    return false;
  }
  const at::Tensor& zeros = stack.back().toTensor();
  static const OpInfo& op = op_info(op_of_zeros());
  OpenCall made = this->open(op);
  made.plain.ambient = open.plain.ambient;
  open = std::move(made);
  return take_arguments(open, {zeros.sizes().vec(), zeros.scalar_type(), zeros.layout(),
                               zeros.device(), c10::IValue()});
}

// What it gave.
void OpLog::take_results(OpenCall open, const std::vector<c10::IValue>& stack, size_t first,
                         bool dynamic) {
  if (!take_zeros(open, stack, first)) return;
  const OpInfo& op = *open.real.op;
  LoggedCall& call = open.plain;
  if (!keep_results(call, stack, first)) return;
  const LogValue source = first_argument(call);
  if (c10::get_default_dtype() != caffe2::TypeMeta::Make<float>() && source < 0 &&
      call.results.size() == 1 && call.results[0] >= 0)
    if (const auto& type = plain_.value(call.results[0]).type)
      name_dtype(op.handle.schema(), call.args, type->dtype);
  if (op.facts.gives_number) {
    if (stack.back().isComplexDouble()) return give_up(Kind::data_dependent, op.name.str());
    call.number = numbers_++;
    call.given = number_arg(stack.back().toScalar());
  }
  const bool counts = dynamic && count_sizes(open);
  call.counts = counts;
  call.sized = dynamic && !counts && guess_sizes(open);
  const bool has_known_shape =
      gives_one(op, call.args) ||
      (op.facts.keeps_first_shape && source >= 0 && !plain_.value(source).dynamic);
  if ((dynamic && !call.sized && !counts) || (plain_.takes_dynamic(call) && !has_known_shape))
    for (LogValue result : call.results)  // but those that it was given to write to
      if (result >= 0 && plain_.value(result).call == static_cast<int32_t>(plain_.calls.size()))
        plain_.values[result].dynamic = true;
  note_effects(call);
  close(std::move(open));
  if (counts) read_count();
}

}  // namespace smelt
