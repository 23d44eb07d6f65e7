#include "capture/dispatch/shapes.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>

#include "aten/convert.h"
#include "aten/each_tensor.h"
#include "aten/keys.h"
#include "aten/stand_ins.h"
#include "base/error.h"
#include "capture/dispatch/derive.h"
#include "capture/dispatch/recorder.h"
#include "diagnostics/counters.h"
#include "diagnostics/log.h"
#include "ops/rules/fft_library.h"
#include "ops/rules/not_literal.h"
#include "ops/rules/promotion.h"
#include "ops/shapes/library_results.h"
#include "ops/shapes/literal_results.h"

namespace smelt {

c10::DispatchKeySet recording_keys() {
  using c10::DispatchKey;
  static const c10::DispatchKeySet keys =
      c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset |
      c10::DispatchKeySet({kTopKey, kRecordKey, DispatchKey::Functionalize,
                           DispatchKey::FuncTorchDynamicLayerFrontMode,
                           DispatchKey::FuncTorchDynamicLayerBackMode,
                           DispatchKey::PythonTLSSnapshot, DispatchKey::Python});
  return keys;
}

namespace {

using torch::jit::Stack;

std::vector<int64_t> evaluate(std::span<const Size> sizes, std::span<const int64_t> symbols) {
  std::vector<int64_t> out;
  out.reserve(sizes.size());
  for (const Size& size : sizes) out.push_back(size.evaluate(symbols));
  return out;
}

// A tensor of the type without memory. Its device is meta's: results get theirs afterwards.
at::Tensor make_stand_in(const TensorType& type, std::span<const int64_t> symbols) {
  const auto sizes = evaluate(type.sizes, symbols), strides = evaluate(type.strides, symbols);
  at::Tensor tensor = at::detail::empty_strided_meta(sizes, strides, to_scalar_type(type.dtype));
  if (type.conj) tensor._set_conj(true);
  if (type.neg) tensor._set_neg(true);
  return tensor;
}

// A number of the recording: what it is now, else 1.
at::Scalar example_number(const Call& call, Ref ref) {
  if (const auto known = call.numbers.find(ref.id); known != call.numbers.end() && known->second)
    return *known->second;
  const DType dtype = call.types[ref.id].dtype;
  if (dtype == DType::b8) return true;
  return dtype == DType::i64 ? at::Scalar(1) : at::Scalar(1.0);
}

Stack make_stack(const Call& call, std::span<const int64_t> symbols,
                 c10::DeviceType on = c10::kMeta) {
  const ArgReader reader{.tensor =
                             [&](Ref ref) {
                               const TensorType& type = call.types[ref.id];
                               return type.wrapped_number
                                          ? number_as_tensor(example_number(call, ref))
                                          : make_stand_in(type, symbols);
                             },
                         .number = [&](Ref ref) { return example_number(call, ref); },
                         .opaque = [&](Opaque opaque) { return call.opaque[opaque.index]; },
                         .size = [&](const Size& size) { return size.evaluate(symbols); }};
  Stack stack;
  stack.reserve(call.args.size());
  for (size_t i = 0; i < call.args.size(); ++i) {
    c10::IValue value = to_ivalue(call.args[i], call.op.arg_types[i], reader);
    if (value.isDevice()) value = c10::Device(on);
    if (value.isGenerator()) value = c10::IValue();
    stack.push_back(std::move(value));
  }
  return stack;
}

// The device of the results where the meta kernel can't say: the one asked for, else that of the
// first tensor with dimensions, else of the first.
Device result_device(const Call& call) {
  for (const Arg& arg : call.args)
    if (arg.is<Device>()) return arg.get<Device>();
  for (const TensorType& type : call.types)
    if (type.rank() > 0) return type.device;
  return call.types.empty() ? Device{} : call.types.front().device;
}

std::vector<Result> read_results(const Stack& stack, Device device) {
  const auto describe = [&](const at::Tensor& tensor) {
    if (tensor.layout() != c10::kStrided)
      throw RecordError("a tensor of layout " + std::string(c10::str(tensor.layout())) +
                        " can't take part in a recording yet");
    if (!to_dtype(tensor.scalar_type()))
      throw RecordError("a tensor of dtype " + std::string(c10::toString(tensor.scalar_type())) +
                        " can't take part in a recording yet");
    TensorType type = type_of(tensor);
    type.device = device;
    type.wrapped_number = false;
    return type;
  };
  std::vector<Result> results;
  for (const c10::IValue& value : stack) {
    Result result;
    if (value.isTensor()) {
      if (value.toTensor().defined()) result.tensor = describe(value.toTensor());
    } else if (value.isTensorList()) {
      result.kind = Result::Kind::list;
      for (const at::Tensor& tensor : value.toTensorVector())
        result.list.push_back(describe(tensor));
    } else {
      result.kind = Result::Kind::literal;
      result.literal = value;
    }
    results.push_back(std::move(result));
  }
  return results;
}

// A kernel that the library of a custom op has registered for tensors without memory; its results
// are of the device that the arguments are of.
bool has_own_meta(const Call& call) {
  const bool takes_tensor =
      std::ranges::any_of(call.types, [](const TensorType& type) { return !type.wrapped_number; });
  return call.op.is_custom && takes_tensor &&
         call.op.handle.hasKernelForDispatchKey(c10::DispatchKey::Meta);
}

std::vector<Result> run_meta(const Call& call, std::span<const int64_t> symbols) {
  count(Counter::shapes_meta);
  Stack stack = make_stack(call, symbols);
  if (call.op.meta)
    call.op.meta->callBoxed(call.op.handle, c10::DispatchKeySet(c10::DispatchKey::Meta), &stack);
  else
    call.op.handle.callBoxed(&stack);
  return read_results(stack, result_device(call));
}

// What makes a tensor of numbers alone can be made: none of its contents is invented.
bool is_plain_factory(const Call& call) {
  return !call.op.is_custom && !call.op.traits.random && call.types.empty() && call.op.is_factory;
}

std::vector<Result> run_factory(const Call& call, std::span<const int64_t> symbols) {
  count(Counter::shapes_meta);
  Stack stack = make_stack(call, symbols, c10::kCPU);
  call.op.handle.callBoxed(&stack);
  return read_results(stack, result_device(call));
}

// Are the arguments wrong whatever they hold? PyTorch's kernel for tensors without memory says so.
// It lets an index of floats pass.
bool is_certainly_wrong(const Call& call, std::span<const int64_t> symbols) {
  const auto& arguments = call.op.handle.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i)
    if (arguments[i].name() == "index" && call.args[i].is<Ref>() &&
        is_floating(call.types[call.args[i].get<Ref>().id].dtype))
      return true;
  if (!call.op.handle.hasComputedKernelForDispatchKey(c10::DispatchKey::Meta)) return false;
  Stack stack = make_stack(call, symbols);
  try {
    call.op.handle.callBoxed(&stack);
  } catch (const c10::NotImplementedError&) {
    return false;  // of the kernel itself, perhaps
  } catch (const std::exception&) {
    return true;
  }
  return false;
}

// A row declines wrong arguments too, and PyTorch says best what is wrong with them: its kernel for
// the CPU is called where that is certain, so that it raises before it looks at a tensor. A program
// that was run before has no wrong arguments.
void raise_as_eager(const Call& call, std::span<const int64_t> symbols) {
  constexpr int64_t kMost = 1 << 20;  // elements
  const Recorder* recorder = Recorder::current();
  const auto is_large = [&](const TensorType& type) {
    return type.numel().evaluate(symbols) > kMost;
  };
  if (call.op.is_custom || call.op.traits.random || (recorder && recorder->is_replay()) ||
      std::ranges::any_of(call.types, is_large) || !is_certainly_wrong(call, symbols))
    return;
  Stack stack = make_stack(call, symbols, c10::kCPU);
  const auto on_cpu = [](const at::Tensor& like) {
    if (!like.defined() || !like.is_meta()) return like;
    at::Tensor tensor =
        at::detail::empty_strided_cpu(like.sizes(), like.strides(), like.scalar_type());
    if (like.is_conj()) tensor._set_conj(true);
    if (like.is_neg()) tensor._set_neg(true);
    return tensor;
  };
  for (c10::IValue& value : stack) map_tensors(value, on_cpu);
  call.op.handle.callBoxed(&stack);
}

[[noreturn]] void refuse(const Call& call, const std::string& reason) {
  if (!reason.empty()) throw RecordError(reason);
  if (const std::string_view layout = special_layout(call.op.name); !layout.empty())
    throw RecordError("a tensor of layout " + std::string(layout) +
                      " can't take part in a recording yet");
  throw RecordError(call.op.is_custom
                        ? "nothing says what its results are without running it; register a fake "
                          "kernel for it (torch.library.register_fake)"
                        : "nothing says what its results are without computing them; call it "
                          "outside of what is recorded");
}

bool is_integer(const c10::Argument& result) {
  return result.real_type()->kind() == c10::TypeKind::IntType ||
         result.real_type()->kind() == c10::TypeKind::SymIntType;
}

// Gives the flat types of a row their places in the schema's results. Several list results are like
// the list arguments of the same position (the fused optimizers). Integers stand among them.
std::vector<Result> structure(const Call& call, std::vector<std::optional<TensorType>> flat,
                              std::span<const c10::SymInt> integers = {}) {
  const auto& returns = call.op.handle.schema().returns();
  for (std::optional<TensorType>& type : flat)
    if (type) type->wrapped_number = false;
  std::vector<Result> results;
  size_t next = 0, next_integer = 0;
  for (size_t i = 0; i < returns.size(); ++i) {
    Result result;
    if (is_integer(returns[i])) {
      SMELT_CHECK(next_integer < integers.size(), "an integer result that no row gives");
      result.kind = Result::Kind::literal;
      result.literal = c10::IValue(integers[next_integer++]);
    } else if (returns[i].type()->kind() == c10::TypeKind::ListType) {
      result.kind = Result::Kind::list;
      const size_t length = returns.size() == 1 ? flat.size() : call.args[i].get<ArgList>().size();
      for (size_t k = 0; k < length; ++k) result.list.push_back(*flat.at(next++));
    } else {
      result.tensor = std::move(flat.at(next++));
    }
    results.push_back(std::move(result));
  }
  return results;
}

// Of an op that only a library knows all about.
std::optional<std::vector<Result>> ask_library(const Call& call, const SymbolsPtr& symbols,
                                               std::string& reason) {
  ShapeQuery query(call.args, call.types, *symbols, *default_dtype());
  if (const Decision decision = library_results(query); !decision) {
    reason = decision.reason();
    return std::nullopt;
  }
  count(Counter::shapes_row);
  if (!at::GradMode::is_enabled()) query.results.back() = std::nullopt;  // it keeps nothing
  return structure(call, std::move(query.results));
}

// Nothing: the row does not say, for the reason given if there is a row.
std::optional<std::vector<Result>> ask_row(const Call& call, const SymbolsPtr& symbols,
                                           std::string& reason) {
  const std::optional<DType> default_float = default_dtype();
  if (call.op.facts.sized_by_library && default_float) return ask_library(call, symbols, reason);
  if (!call.op.row || !default_float) return std::nullopt;
  ShapeQuery query(call.args, call.types, *symbols, *default_float);
  std::vector<c10::SymInt> integers;
  if (call.op.literal_results) {
    const std::optional<Sizes> literals = literal_results(call.op.name, query);
    if (!literals) return std::nullopt;
    integers = to_sym_ints(*literals, symbols);
  }
  const Decision decision = with_literals([&] { return call.op.row->shape(query); });
  if (decision) {
    count(Counter::shapes_row);
    return structure(call, std::move(query.results), integers);
  }
  reason = decision.reason();
  if (log_enabled(Log::shapes)) log(Log::shapes, call.op.name.str() + ": " + reason);
  return std::nullopt;
}

// An op in place has its functional form's results.
bool is_known(const Call& call, const KnownResults* known) {
  if (known == nullptr || call.op.literal_results) return false;
  const std::string& ran = known->op.schema().name();
  return known->op == call.op.handle ||
         (ran == call.op.handle.schema().name() + "_" && known->types.size() == 1 &&
          call.op.handle.schema().returns().size() == 1);
}

// Its kernel calls ops for which autocast chooses a dtype. A graph calls it without.
bool is_chosen_by_autocast(const Call& call, const KnownResults& known) {
  if (!at::autocast::is_autocast_enabled(at::kCPU) && !at::autocast::is_autocast_enabled(at::kCUDA))
    return false;
  return std::ranges::any_of(known.types, [&](const std::optional<TensorType>& type) {
    return type && is_floating(type->dtype) && type->dtype != default_dtype() &&
           std::ranges::none_of(call.types, [&](const TensorType& argument) {
             return argument.dtype == type->dtype;
           });
  });
}

// An op that changes its first argument and returns it.
bool is_in_place(const Call& call) {
  const auto& schema = call.op.handle.schema();
  if (!call.op.is_mutable || schema.returns().size() != 1 || !call.args[0].is<Ref>()) return false;
  const c10::AliasInfo* first = schema.arguments()[0].alias_info();
  const c10::AliasInfo* result = schema.returns()[0].alias_info();
  return first && result && first->isWrite() && result->isWrite();
}

// Types decide about what it gives: is_same_size().
bool gives_literals_alone(const Call& call) {
  const auto& returns = call.op.handle.schema().returns();
  return !call.op.is_custom && !returns.empty() &&
         std::ranges::all_of(returns, [](const c10::Argument& result) {
           return result.type()->kind() != c10::TypeKind::TensorType &&
                  result.type()->kind() != c10::TypeKind::ListType;
         });
}

bool is_symbolic(const Call& call) {
  const auto unknown = [](const Size& size) { return !size.is_known(); };
  for (const TensorType& type : call.types)
    if (!all_known(type.sizes) || !all_known(type.strides) || !type.offset.is_known()) return true;
  bool found = false;
  for (const Arg& arg : call.args)
    each_size(arg, [&](const Size& size) { found |= unknown(size); });
  return found;
}

// Set as the library is loaded, before any row is asked.
[[maybe_unused]] const bool kFftIsKnown = (fft_by_mkl = at::hasMKL(), true);

}  // namespace

std::vector<Result> infer_results(const Call& call, const SymbolsPtr& symbols,
                                  const KnownResults* known) {
  std::string reason;
  if (auto results = ask_row(call, symbols, reason)) return std::move(*results);
  if (!call.op.meta && is_known(call, known)) {
    if (is_chosen_by_autocast(call, *known))
      throw RecordError("its kernel calls others, for which autocast chooses a dtype");
    count(Counter::shapes_seen);
    if (is_symbolic(call)) specialise_call(call, *symbols);
    return structure(call, known->types);
  }
  if (!call.op.meta && is_in_place(call))
    return structure(call, {call.types[call.args[0].get<Ref>().id]});
  const bool by_factory = !call.op.meta && is_plain_factory(call);
  if (!call.op.meta && !by_factory && !has_own_meta(call) && !gives_literals_alone(call)) {
    c10::impl::ExcludeDispatchKeyGuard plain(recording_keys());
    if (!reason.empty()) raise_as_eager(call, symbols->hints());
    refuse(call, reason);
  }
  if (!call.op.meta && log_enabled(Log::shapes)) log(Log::shapes, "meta " + call.op.name.str());
  c10::impl::ExcludeDispatchKeyGuard plain(recording_keys());
  const std::vector<int64_t> hints = symbols->hints();
  const auto rule = [&](std::span<const int64_t> values) {
    return by_factory ? run_factory(call, values) : run_meta(call, values);
  };
  return is_symbolic(call) ? derive_results(call, *symbols, rule) : rule(hints);
}

}  // namespace smelt
