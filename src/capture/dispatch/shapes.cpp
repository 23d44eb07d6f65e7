#include "capture/dispatch/shapes.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/rand.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "base/counters.h"
#include "base/error.h"
#include "base/log.h"
#include "capture/dispatch/convert.h"
#include "capture/dispatch/derive.h"
#include "capture/dispatch/keys.h"
#include "capture/dispatch/stand_ins.h"
#include "ops/not_literal.h"

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

// How a stand-in for a tensor argument is made, and which device the call's Device arguments name.
// `identity` has ones on the diagonal of each matrix: what factorizations accept.
enum class StandIn : uint8_t { meta, zeros, ones, identity, random };

void fill_stand_in(at::Tensor& tensor, StandIn how) {
  const bool is_number = tensor.is_floating_point() || tensor.is_complex();
  if (how == StandIn::random && is_number) {
    const at::Generator own = at::detail::createCPUGenerator(/*seed_val=*/1);
    tensor.copy_(at::rand(tensor.sizes(), own));
  } else if (how == StandIn::identity && is_number && tensor.dim() >= 2) {
    tensor.zero_();
    tensor.diagonal(0, -2, -1).fill_(1);
  } else {
    tensor.fill_(how == StandIn::zeros ? 0 : 1);
  }
}

at::Tensor make_stand_in(const TensorType& type, StandIn how, std::span<const int64_t> symbols) {
  const auto sizes = evaluate(type.sizes, symbols), strides = evaluate(type.strides, symbols);
  const c10::ScalarType dtype = to_scalar_type(type.dtype);
  at::Tensor tensor;
  if (how == StandIn::meta) {
    tensor = at::detail::empty_strided_meta(sizes, strides, dtype);
  } else {
    tensor =
        at::empty_strided(sizes, strides, at::TensorOptions(dtype).device(to_c10(type.device)));
    fill_stand_in(tensor, how);
  }
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

Stack make_stack(const Call& call, StandIn how, std::span<const int64_t> symbols) {
  const ArgReader reader{.tensor =
                             [&](Ref ref) {
                               const TensorType& type = call.types[ref.id];
                               return type.wrapped_number
                                          ? number_as_tensor(example_number(call, ref))
                                          : make_stand_in(type, how, symbols);
                             },
                         .number = [&](Ref ref) { return example_number(call, ref); },
                         .opaque = [&](Opaque opaque) { return call.opaque[opaque.index]; },
                         .size = [&](const Size& size) { return size.evaluate(symbols); }};
  Stack stack;
  stack.reserve(call.args.size());
  for (size_t i = 0; i < call.args.size(); ++i) {
    c10::IValue value = to_ivalue(call.args[i], call.op.arg_types[i], reader);
    if (how == StandIn::meta && value.isDevice()) value = c10::Device(c10::kMeta);
    if (how == StandIn::meta && value.isGenerator()) value = c10::IValue();
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

std::vector<Result> read_results(const Stack& stack, std::optional<Device> device) {
  const auto describe = [&](const at::Tensor& tensor) {
    if (tensor.layout() != c10::kStrided)
      throw RecordError("a tensor of layout " + std::string(c10::str(tensor.layout())) +
                        " can't take part in a recording yet");
    if (!to_dtype(tensor.scalar_type()))
      throw RecordError("a tensor of dtype " + std::string(c10::toString(tensor.scalar_type())) +
                        " can't take part in a recording yet");
    TensorType type = type_of(tensor);
    if (device) type.device = *device;
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

std::vector<Result> run_meta(const Call& call, std::span<const int64_t> symbols) {
  Stack stack = make_stack(call, StandIn::meta, symbols);
  call.op.meta->callBoxed(call.op.handle, c10::DispatchKeySet(c10::DispatchKey::Meta), &stack);
  return read_results(stack, result_device(call));
}

// Puts the generators that a random op may draw from back to where they were.
class KeepRandomState {
 public:
  explicit KeepRandomState(const Call& call) {
    if (!call.op.traits.random) return;
    keep(at::globalContext().defaultGenerator(to_c10(result_device(call))));
    for (const Arg& arg : call.args)
      if (arg.is<Opaque>() && call.opaque[arg.get<Opaque>().index].isGenerator())
        keep(call.opaque[arg.get<Opaque>().index].toGenerator());
  }
  ~KeepRandomState() {
    for (auto& [generator, state] : kept_) {
      std::lock_guard lock(generator.mutex());
      generator.set_state(state);
    }
  }
  KeepRandomState(const KeepRandomState&) = delete;
  KeepRandomState& operator=(const KeepRandomState&) = delete;

 private:
  void keep(at::Generator generator) {
    std::lock_guard lock(generator.mutex());
    kept_.emplace_back(generator, generator.get_state());
  }
  std::vector<std::pair<at::Generator, at::Tensor>> kept_;
};

// Runs the op for real. Contents that an op rejects (a singular matrix, a zero divisor) say nothing
// about the user's program, so other contents are tried before the error counts as the user's.
std::vector<Result> run_probe(const Call& call, std::span<const int64_t> symbols) {
  const KeepRandomState keep(call);
  std::exception_ptr first;
  for (StandIn how : {StandIn::zeros, StandIn::ones, StandIn::identity, StandIn::random}) {
    try {
      Stack stack = make_stack(call, how, symbols);
      call.op.handle.callBoxed(&stack);
      return read_results(stack, std::nullopt);
    } catch (const RecordError&) {
      throw;
    } catch (...) {
      if (!first) first = std::current_exception();
    }
  }
  std::rethrow_exception(first);
}

std::vector<Result> run_tier(const Call& call, std::span<const int64_t> symbols) {
  const bool by_meta = call.op.meta != nullptr;
  count(by_meta ? Counter::shapes_meta : Counter::shapes_probe);
  if (by_meta) return run_meta(call, symbols);
  if (log_enabled(Log::shapes)) log(Log::shapes, "probe " + call.op.name.str());
  return run_probe(call, symbols);
}

// Gives the flat types of a row their places in the schema's results. Several list results are like
// the list arguments of the same position (the fused optimizers).
std::vector<Result> structure(const Call& call, std::vector<std::optional<TensorType>> flat) {
  const auto& returns = call.op.handle.schema().returns();
  for (std::optional<TensorType>& type : flat)
    if (type) type->wrapped_number = false;
  std::vector<Result> results;
  size_t next = 0;
  for (size_t i = 0; i < returns.size(); ++i) {
    Result result;
    if (returns[i].type()->kind() == c10::TypeKind::ListType) {
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

std::optional<std::vector<Result>> ask_row(const Call& call, const SymbolsPtr& symbols) {
  // The rows take f32 for the default float.
  if (!call.op.row || call.op.literal_results ||
      c10::get_default_dtype() != caffe2::TypeMeta::Make<float>())
    return std::nullopt;
  ShapeQuery query(call.args, call.types, *symbols);
  const Decision decision = with_literals([&] { return call.op.row->shape(query); });
  if (decision) {
    count(Counter::shapes_row);
    return structure(call, std::move(query.results));
  }
  if (log_enabled(Log::shapes)) log(Log::shapes, call.op.name.str() + ": " + decision.reason());
  return std::nullopt;
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

}  // namespace

void run_on_stand_ins(const Call& call, const SymbolTable& symbols) {
  c10::impl::ExcludeDispatchKeyGuard plain(recording_keys());
  run_probe(call, symbols.hints());
}

std::vector<Result> infer_results(const Call& call, const SymbolsPtr& symbols) {
  if (auto results = ask_row(call, symbols)) return std::move(*results);
  c10::impl::ExcludeDispatchKeyGuard plain(recording_keys());
  const std::vector<int64_t> hints = symbols->hints();
  if (!is_symbolic(call)) return run_tier(call, hints);
  return derive_results(call, *symbols,
                        [&](std::span<const int64_t> values) { return run_tier(call, values); });
}

}  // namespace smelt
