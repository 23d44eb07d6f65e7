#include "capture/dispatch/recorder.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <atomic>

#include "aten/convert.h"
#include "aten/digest.h"
#include "aten/keys.h"
#include "diagnostics/counters.h"
#include "diagnostics/log.h"
#include "graph/effects.h"
#include "ops/names.h"
#include "ops/rules/layout.h"

namespace smelt {
namespace {

uint64_t next_recording_id() {
  static std::atomic<uint64_t> counter{1};
  return counter.fetch_add(1, std::memory_order_relaxed);
}

// Functionalization hands what counts as a number on as it is.
bool is_number_tensor(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->is_wrapped_number() && recording_inside(tensor);
}

}  // namespace

Recorder::Recorder(RecorderOptions options)
    : id_(next_recording_id()),
      options_(std::move(options)),
      symbols_(std::make_shared<SymbolTable>()) {
  if (options_.where) symbols_->set_locator(options_.where);
  if (options_.symbols)
    for (const Symbol& symbol : options_.symbols->symbols())
      symbols_->add(symbol.hint, symbol.name);
  // Under a default dtype that smelt has no word for, the first op refuses.
  graph_.default_float = default_dtype().value_or(DType::f32);
  if (options_.only_sizes) return;
  rng_.enter(*this, at::detail::getDefaultCPUGenerator());
  for (const at::Generator& generator : options_.generators)
    if (!rng_.tracks(generator)) rng_.enter(*this, generator);
}

void Recorder::close() noexcept {
  std::lock_guard lock(mutex_);
  rng_.leave();
  symbols_->set_locator({});  // recording tensors that outlive the region share the table
  options_ = {};
}

void Recorder::give_up(const std::string& reason) {
  std::lock_guard lock(mutex_);
  if (refusal_) return;
  refusal_ = reason;
  count(Counter::refusals);
  if (log_enabled(Log::refusals)) log(Log::refusals, reason);
}

void Recorder::refuse(const std::string& reason) {
  give_up(reason);
  throw RecordError(*refusal_);
}

void Recorder::check_not_refused() {
  if (refusal_) throw RecordError(*refusal_);
  if (broken_) refuse("the function went on after an in-place op had failed in it");
}

void Recorder::fail_in_place(const std::string& message) {
  broken_ = true;
  TORCH_CHECK(false, message);
}

ValueId Recorder::value_of(const at::Tensor& tensor) const {
  RecordingTensor* recording =
      is_number_tensor(tensor) ? recording_inside(tensor) : as_recording(tensor);
  SMELT_CHECK(recording && recording->recording() == id_, "a tensor of another recording");
  return recording->value();
}

ValueId Recorder::current_value(const at::Tensor& tensor) const {
  if (as_recording(tensor) || is_number_tensor(tensor)) return value_of(tensor);
  at::functionalization::impl::sync(tensor);
  return value_of(at::functionalization::impl::from_functional_tensor(tensor));
}

NodeId Recorder::add_node(OpName op, std::vector<Arg> args,
                          std::span<const std::optional<TensorType>> types, Traits traits) {
  return graph_.add_node(op, std::move(args), types, traits);
}

at::Tensor Recorder::make_tensor(ValueId value) const {
  return at::Tensor(c10::make_intrusive<RecordingTensor>(graph_.type(value), id_, value, symbols_));
}

ValueId Recorder::add_constant(const at::Tensor& real) {
  if (auto it = constants_.find(real.unsafeGetTensorImpl()); it != constants_.end())
    return it->second;
  const ValueId value =
      graph_.add_constant(type_of(real), std::make_shared<at::Tensor>(real), digest_of(real));
  constants_.emplace(real.unsafeGetTensorImpl(), value);
  kept_.push_back(real);
  return value;
}

at::Tensor Recorder::wrapper_of(const at::Tensor& recording) {
  std::lock_guard lock(mutex_);
  auto [it, is_new] = wrappers_.try_emplace(recording.unsafeGetTensorImpl());
  if (is_new) {
    it->second = at::functionalization::impl::to_functional_tensor(recording);
    if (recording.requires_grad()) it->second.set_requires_grad(true);
    kept_.push_back(recording);
  }
  return it->second;
}

// torch.tensor(...) in the region: each run of the graph makes a new tensor of those contents.
at::Tensor Recorder::constant(const at::Tensor& real) {
  std::lock_guard lock(mutex_);
  check_not_refused();
  TensorType type = type_of(real);
  const ValueId source = add_constant(real);
  type.offset = 0;
  type.strides = contiguous_strides(type.sizes);  // torch.tensor() is contiguous
  const std::optional<TensorType> types[] = {type};
  const NodeId node = add_node(names::kLiftFreshCopy, {Arg(Ref{source})}, types, {});
  at::Tensor twin = at::functionalization::impl::to_functional_tensor(make_tensor(result_of(node)));
  if (real.requires_grad()) twin.set_requires_grad(true);
  return twin;
}

Arg Recorder::generator_arg(const at::Generator& generator) {
  const c10::Device device = generator.device();
  if (generator == at::globalContext().defaultGenerator(device)) return Arg(to_device(device));
  opaque_.emplace_back(generator);
  return Arg(Opaque{static_cast<int32_t>(opaque_.size() - 1)});
}

// -- writing a call down

at::Scalar Recorder::number_in(const at::Tensor& wrapped) const {
  if (const auto size = size_tensors_.find(wrapped.unsafeGetTensorImpl());
      size != size_tensors_.end())
    return size->second;
  if (options_.number && !symbols_->empty())
    if (const auto symbolic = options_.number(wrapped)) return *symbolic;
  c10::impl::ExcludeDispatchKeyGuard plain(recording_keys());
  return wrapped.item();
}

Call Recorder::make_call(const OpInfo& op, const std::vector<c10::IValue>& stack,
                         std::vector<ValueId>& values) {
  Call call{op, {}, {}, opaque_, {}};
  const auto local = [&](ValueId value) {
    values.push_back(value);
    call.types.push_back(graph_.type(value));
    if (numbers::is_number(graph_.type(value)))
      call.numbers.emplace(static_cast<int32_t>(values.size() - 1), example_of(value));
    return Arg(Ref{static_cast<int32_t>(values.size() - 1)});
  };
  const ArgWriter writer{
      .tensor =
          [&](const at::Tensor& tensor) {
            if (as_recording(tensor) || is_number_tensor(tensor)) return local(value_of(tensor));
            if (tensor.unsafeGetTensorImpl()->is_wrapped_number())
              return to_arg(c10::IValue(number_in(tensor)), c10::NumberType::get(), {});
            return local(add_constant(tensor));
          },
      .number = [&](const RecordedNumber& number) { return local(value_of(number)); },
      .opaque =
          [&](const c10::IValue& value) {
            if (!value.isGenerator())
              refuse(op.name.str() + " has an argument of type " + value.tagKind() +
                     ", which a recording can't hold");
            opaque_.push_back(value);
            return Arg(Opaque{static_cast<int32_t>(opaque_.size() - 1)});
          }};
  const size_t first = stack.size() - op.arg_types.size();
  for (size_t i = 0; i < op.arg_types.size(); ++i)
    call.args.push_back(to_arg(stack[first + i], op.arg_types[i], writer));
  return call;
}

namespace {

// The generator an op draws from: the one it was given, else its device's own.
at::Generator generator_of(const Call& call, const std::vector<Result>& results) {
  for (const Arg& arg : call.args)
    if (arg.is<Opaque>() && call.opaque[arg.get<Opaque>().index].isGenerator())
      return call.opaque[arg.get<Opaque>().index].toGenerator();
  Device device;
  for (const Result& result : results)
    if (result.tensor) device = result.tensor->device;
  return at::globalContext().defaultGenerator(to_c10(device));
}

bool has_mask(const Call& call) {
  bool found = false;
  for (const Arg& arg : call.args)
    if (arg.is<ArgList>())
      each_ref(arg, [&](Ref ref) {
        const DType dtype = call.types[ref.id].dtype;
        found |= dtype == DType::b8 || dtype == DType::u8;
      });
  return found;
}

std::vector<std::optional<TensorType>> flatten(const std::vector<Result>& results) {
  std::vector<std::optional<TensorType>> types;
  for (const Result& result : results) {
    if (result.kind == Result::Kind::tensor) types.push_back(result.tensor);
    for (const TensorType& type : result.list) types.emplace_back(type);
  }
  return types;
}

void to_value_ids(std::vector<Arg>& args, const std::vector<ValueId>& values) {
  for (Arg& arg : args) each_ref(arg, [&](Ref& ref) { ref.id = values[ref.id]; });
}

}  // namespace

// The op will change fresh copies instead of the arguments; what they hold afterwards are further
// results.
void Recorder::copy_silently_written(const OpInfo& op, Call& call, std::vector<ValueId>& values) {
  for (int position : op.silent_writes)
    if (call.args[position].is<Ref>()) copy_argument(call, values, position);
}

void Recorder::copy_argument(Call& call, std::vector<ValueId>& values, int position) {
  const int32_t place = call.args[position].get<Ref>().id;
  const std::optional<TensorType> types[] = {preserved(*symbols_, call.types[place])};
  values[place] =
      result_of(add_node(names::kClone, {Arg(Ref{values[place]}), Arg(None{})}, types, {}));
  call.types[place] = *types[0];
}

void Recorder::push_results(const std::vector<Result>& results, const std::vector<ValueId>& values,
                            std::vector<c10::IValue>* stack) {
  size_t next = 0;
  const auto make = [&] {
    const ValueId value = values[next++];
    if (value < 0) return at::Tensor();
    return make_tensor(value);
  };
  for (const Result& result : results) {
    switch (result.kind) {
      case Result::Kind::tensor: stack->emplace_back(make()); break;
      case Result::Kind::literal: stack->push_back(result.literal); break;
      case Result::Kind::list: {
        std::vector<at::Tensor> list(result.list.size());
        for (at::Tensor& tensor : list) tensor = make();
        stack->emplace_back(std::move(list));
      }
    }
  }
}

std::vector<Result> Recorder::infer(const Call& call) {
  try {
    return infer_results(call, symbols_, known_results_);
  } catch (const RecordError& error) {
    refuse(call.op.name.str() + ": " + error.what());
  }
}

void Recorder::record(const OpInfo& op, std::vector<c10::IValue>* stack) {
  std::lock_guard lock(mutex_);
  check_not_refused();
  if (recorded_ops_++ == options_.fail_at) throw Error("injected failure at " + op.name.str());
  if (default_dtype() != graph_.default_float)
    refuse("the function changes the default dtype (torch.set_default_dtype)");
  if (op.is_mutable && op.silent_writes.empty())
    refuse(op.name.str() + " changes an argument in place and has no functional form in PyTorch");
  std::vector<ValueId> values;
  Call call = make_call(op, *stack, values);
  if (op.data_dependent && (!op.facts.by_masks_only || has_mask(call)))
    refuse(op.name.str() +
           " gives a result that depends on tensor contents (a Python number, a bool, or a "
           "shape), which are not known while a program is written down");
  if (!call.numbers.empty() && op.facts.sized_by_numbers)
    refuse(op.name.str() + " gives a result whose size depends on a number that is not known yet");
  const bool silent =
      !op.silent_writes.empty() && (op.silent_when < 0 || call.args[op.silent_when].get<bool>());
  if (silent) copy_silently_written(op, call, values);
  const std::vector<Result> results = infer(call);
  std::optional<at::Generator> generator;
  if (draws(call.op, call.args) && !options_.only_sizes) {
    generator = generator_of(call, results);
    if (!rng_.tracks(*generator)) {
      if (*generator != at::globalContext().defaultGenerator(generator->device()))
        refuse(op.name.str() +
               " draws from a torch.Generator that was made inside the recorded function; "
               "make it outside and pass it as an argument");
      rng_.enter(*this, *generator);
    }
    rng_.before_draw(*this, *generator);
  }
  Traits traits = op.traits;
  traits.effect = traits.effect || op.may_have_effects;
  traits.random = generator.has_value();
  traits.grad = op.reads_grad_mode && at::GradMode::is_enabled();
  std::vector<std::optional<TensorType>> types = flatten(results);
  OpName name = op.name;
  std::vector<Arg> args = call.args;
  if (silent) {
    name = effects::mutator_of(op.name);
    ArgList written;
    for (int position : op.silent_writes) {
      if (!call.args[position].is<Ref>()) continue;
      written.emplace_back(Size(position));
      types.emplace_back(call.types[call.args[position].get<Ref>().id]);
    }
    args.insert(args.begin(), Arg(std::move(written)));
  }
  to_value_ids(args, values);
  expect_fitting(call, values, types);
  const NodeId node = add_node(name, std::move(args), types, traits);
  if (op.facts.recording == Recording::copy) {
    ++casts_;
    last_cast_.emplace(call.types.at(0).dtype, types.at(0)->dtype);
  }
  if (generator) rng_.after_draw(*this, *generator);
  count(Counter::nodes);
  if (log_enabled(Log::record)) log(Log::record, str(graph_, graph_.nodes[node]));
  stack->resize(stack->size() - op.arg_types.size());
  push_results(results, graph_.nodes[node].results, stack);
  if (!silent) return;
  size_t next = graph_.nodes[node].results.size();
  for (auto position = op.silent_writes.rbegin(); position != op.silent_writes.rend(); ++position)
    if (call.args[*position].is<Ref>())
      silent_writes_.emplace_back(*position, make_tensor(graph_.nodes[node].results[--next]));
}

}  // namespace smelt
