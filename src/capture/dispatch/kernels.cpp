// The two boxed kernels of the recorder and their registration.
//
// top kernel (above autocast and autograd, switched on by the scope, and on every recording
// tensor's own key set): sees each op as the user's code calls it.
//   - Real tensors are replaced by their twins; the op is then called again, since its keys
//     changed.
//   - Factories have no tensor to carry the recorder further down: they are written down here.
//   - A few ops need help on their way through functionalization; one function each below.
//   - In-place ops are checked here: functionalization itself would accept x.add_(wider) and
//     int.add_(0.5).
// record kernel (below functionalization): writes the node down (Recorder::record).
//
// Rules for whoever changes this file: nothing here may compute on a real tensor except under
// recording_keys() excluded; an op that can't be handled calls Recorder::refuse, which also makes
// every later op of the region throw, so that code which swallows the exception can't produce a
// wrong graph.
#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/library.h>

#include "aten/convert.h"
#include "aten/each_tensor.h"
#include "aten/keys.h"
#include "aten/transforms.h"
#include "capture/dispatch/eager_path.h"
#include "capture/dispatch/inplace_check.h"
#include "capture/dispatch/record_scaled.h"
#include "capture/dispatch/recorder.h"
#include "capture/dispatch/restride.h"
#include "capture/dispatch/written_products.h"
#include "capture/log/op_log.h"
#include "ops/names.h"

namespace smelt {
namespace {

using at::functionalization::impl::isFunctionalTensor;
using c10::DispatchKey;
using c10::DispatchKeySet;
using torch::jit::Stack;

void (*raise_hook)(const std::string& message) = nullptr;

[[noreturn]] void raise(const std::string& message) {
  if (raise_hook) raise_hook(message);
  throw Error(message);
}

DispatchKeySet below_top(DispatchKeySet keys) {
  return keys & DispatchKeySet(DispatchKeySet::FULL_AFTER, kTopKey);
}

// A transform takes the op apart first: its levels unwrap the tensors and ask again, for ops on what
// is in them. Those of a level that has ended are unwrapped too.
bool is_for_transform(const Stack& stack, size_t first) {
  if (is_under_transform()) return true;
  bool found = false;
  for (size_t i = first; i < stack.size() && !found; ++i)
    each_tensor(stack[i],
                [&](const at::Tensor& tensor) { found = found || is_functorch_wrapper(tensor); });
  return found;
}

bool needs_twin(const at::Tensor& tensor) {
  if (tensor.key_set().has(kRecordKey)) return false;
  return !is_functorch_wrapper(tensor) && !tensor.is_meta() &&
         !tensor.unsafeGetTensorImpl()->is_wrapped_number();
}

// What the arguments of an op are, and the replacement of the ones that don't belong to this
// recording.
struct Arguments {
  bool any_tensor = false;
  bool replaced = false;
};

Arguments take_arguments(Recorder* recorder, Stack* stack, size_t first) {
  Arguments seen;
  for (size_t i = first; i < stack->size(); ++i) {
    map_tensors((*stack)[i], [&](const at::Tensor& tensor) -> at::Tensor {
      seen.any_tensor = true;
      at::Tensor real = tensor;
      if (RecordingTensor* twin = recording_inside(tensor)) {
        if (recorder && twin->recording() == recorder->id()) {
          if (!as_recording(tensor)) return tensor;
          seen.replaced = true;
          return recorder->wrapper_of(tensor);
        }
        real = Recorder::real_of_twin(tensor);  // another thread is recording with this tensor
        if (!real.defined())
          raise(
              "a tensor that was made while smelt recorded a function was used after the recording "
              "ended; it has no contents. Return it from the recorded function instead of storing "
              "it");
        seen.replaced = true;
      }
      if (!recorder || !needs_twin(real) || recorder->is_rng_state(real)) return real;
      seen.replaced = true;
      return recorder->twin_of(real);
    });
  }
  return seen;
}

void mark_results(const Stack& stack, size_t first) {
  for (size_t i = first; i < stack.size(); ++i)
    each_tensor(stack[i], [](const at::Tensor& tensor) {
      if (tensor.key_set().has(DispatchKey::Functionalize) && !is_functorch_wrapper(tensor))
        if (auto* storage = tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl())
          storage->set_throw_on_mutable_data_ptr();
    });
}

bool record_factory(Recorder& recorder, const OpInfo& op, DispatchKeySet keys, Stack* stack,
                    size_t first) {
  if (!op.is_factory || op.is_composite) return false;
  for (size_t i = first; i < stack->size(); ++i) {
    if ((*stack)[i].isDevice() && (*stack)[i].toDevice().is_meta()) {
      op.handle.redispatchBoxed(below_top(keys), stack);
      return true;
    }
  }
  recorder.record(op, stack);
  for (size_t i = first; i < stack->size(); ++i) {  // none: smelt::seed
    c10::IValue& result = (*stack)[i];
    if (result.isTensor())
      result = at::functionalization::impl::to_functional_tensor(result.toTensor());
  }
  mark_results(*stack, first);
  return true;
}

// A real tensor is lifted: torch.tensor(...) in the region.
bool record_constant(Recorder& recorder, const OpInfo& op, Stack* stack) {
  if (op.facts.recording != Recording::lift || !needs_twin(stack->back().toTensor())) return false;
  stack->back() = recorder.constant(stack->back().toTensor());
  mark_results(*stack, stack->size() - 1);
  return true;
}

// The op that stands in the place of another one, by its facts.
c10::OperatorHandle instead_of(const OpInfo& op) {
  const std::string name(op.facts.instead);
  return c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), "");
}

// native_batch_norm updates its statistics without saying so; another op says it.
bool reroute_silent(const OpInfo& op, Stack* stack, size_t first) {
  const c10::IValue& written = (*stack)[first + static_cast<size_t>(op.facts.writes[0])];
  if (!(*stack)[first + static_cast<size_t>(op.facts.writes_if)].toBool()) return false;
  if (!written.isTensor() || !written.toTensor().defined()) return false;
  instead_of(op).callBoxed(stack);
  return true;
}

// Gives a functional tensor a new value, as an in-place op would.
void write_functional(const at::Tensor& target, const at::Tensor& value) {
  at::functionalization::impl::replace_(target, value);
  at::functionalization::impl::commit_update(target);
  at::functionalization::impl::sync(target);
}

// The fused optimizers: functionalization can't take their empty lists, so the functional overload
// is called and the results are written by hand.
bool functionalize_fused(const OpInfo& op, Stack* stack, size_t first) {
  const c10::FunctionSchema& schema = op.handle.schema();
  const std::string& name = schema.name();
  const auto functional = c10::Dispatcher::singleton().findSchemaOrThrow(
      name.substr(0, name.size() - 1).c_str(), schema.overload_name().c_str());
  const std::vector<c10::IValue> arguments(stack->begin() + static_cast<ptrdiff_t>(first),
                                           stack->end());
  functional.callBoxed(stack);
  const auto& results = functional.schema().returns();
  const size_t base = stack->size() - results.size();
  for (size_t k = 0; k < results.size(); ++k) {
    if (!arguments[k].isTensorList()) continue;
    const auto targets = arguments[k].toTensorVector(),
               values = (*stack)[base + k].toTensorVector();
    for (size_t i = 0; i < targets.size(); ++i) {
      at::functionalization::impl::sync(values[i]);
      write_functional(targets[i], at::functionalization::impl::from_functional_tensor(values[i]));
      torch::autograd::impl::bump_version(targets[i]);
    }
  }
  stack->resize(base);
  return true;
}

// Writes an in-place op down as it is, on a copy of its target, in the place of the functional op
// that it would become.
void record_on_copy(Recorder& recorder, const OpInfo& op, Stack* stack, size_t first) {
  const at::Tensor self = (*stack)[first].toTensor();
  const StridesBefore strides(self);
  for (size_t i = first; i < stack->size(); ++i)
    map_tensors((*stack)[i], [](const at::Tensor& tensor) {
      if (!isFunctionalTensor(tensor)) return tensor;
      at::functionalization::impl::sync(tensor);
      return at::functionalization::impl::from_functional_tensor(tensor);
    });
  recorder.record(op, stack);
  for (const auto& [position, value] : recorder.take_silent_writes()) write_functional(self, value);
  strides.restore();
  torch::autograd::impl::bump_version(self);
  stack->back() = self;
}

// Complex numbers that are divided in place are rounded otherwise than those that are not: the
// compiler's vectors are for memory that does not overlap. With gradients the functional op stands.
bool record_division(Recorder& recorder, const OpInfo& op, Stack* stack, size_t first) {
  const at::Tensor self = (*stack)[first].toTensor(), by = (*stack)[first + 1].toTensor();
  const auto is_differentiated = [](const at::Tensor& tensor) {
    return (at::GradMode::is_enabled() && tensor.requires_grad()) || tensor._fw_grad(0).defined();
  };
  if (!self.is_complex() || !self.is_cpu() || self.is_conj() || by.is_conj() ||
      !isFunctionalTensor(self) || is_functorch_wrapper(by) || is_differentiated(self) ||
      is_differentiated(by))
    return false;
  const InplaceCheck check(recorder, op, *stack, first);
  record_on_copy(recorder, op, stack, first);
  check.after();
  return true;
}

// bernoulli_ fills memory in the order of the strides, and bernoulli, to which functionalization
// turns it, fills a contiguous tensor: other elements, and another layout. So the op itself is
// written down, on a copy.
bool record_bernoulli(Recorder& recorder, const OpInfo& op, Stack* stack, size_t first) {
  const at::Tensor self = (*stack)[first].toTensor();
  if (!isFunctionalTensor(self)) return false;  // a wrapper of vmap, unwrapped first
  const TensorType type = type_of(self);
  if (type.strides == contiguous_strides(type.sizes)) return false;
  if (self.requires_grad() && at::GradMode::is_enabled())
    recorder.refuse("bernoulli_() on a tensor that requires grad and is not contiguous");
  record_on_copy(recorder, op, stack, first);
  return true;
}

// normal_ deals its numbers out in one way to dense memory and in another where there are gaps;
// functionalization would put a dense tensor in the place of the one with gaps.
void refuse_gaps(Recorder& recorder, const OpInfo& op, const Stack& stack, size_t first) {
  if (op.facts.recording == Recording::dense_only &&
      !stack[first].toTensor().is_non_overlapping_and_dense())
    recorder.refuse("normal_() on a part of a tensor that has gaps; fill a tensor and copy_() it");
}

// The one in-place op that functionalization has no kernel for.
bool rewrite_polygamma(const OpInfo& op, Stack* stack, size_t first) {
  const at::Tensor self = (*stack)[first].toTensor();
  (*stack)[first] = (*stack)[first + 1];
  (*stack)[first + 1] = self.clone();  // its derivative reads what was there before
  instead_of(op).callBoxed(stack);
  TORCH_CHECK(self.scalar_type() == stack->back().toTensor().scalar_type(), "result type ",
              stack->back().toTensor().scalar_type(), " can't be cast to the desired output type ",
              self.scalar_type());
  stack->back() = self.copy_(stack->back().toTensor());
  return true;
}

// It reads its indices to check them. scatter() finds what is wrong as well, and then the op itself
// says it.
bool rewrite_one_hot(Stack* stack, size_t first) {
  if (!(*stack)[first + 1].isInt()) return false;
  const at::Tensor self = (*stack)[first].toTensor();
  const int64_t classes = (*stack)[first + 1].toInt();
  if (classes <= 0 || self.scalar_type() != c10::kLong) return false;
  std::vector<c10::SymInt> sizes = self.sym_sizes().vec();
  sizes.emplace_back(classes);
  stack->resize(first);
  stack->emplace_back(at::zeros_symint(sizes, self.options()).scatter(-1, self.unsqueeze(-1), 1));
  return true;
}

// PyTorch's own code asks for all sizes. unsafe_chunk(self, chunks, dim)
bool rewrite_chunks(const OpInfo& op, Stack* stack, size_t first) {
  const at::Tensor self = (*stack)[first].toTensor();
  const int64_t chunks = (*stack)[first + 1].toInt(), dim = (*stack)[first + 2].toInt();
  if (self.dim() == 0 || chunks <= 0 || dim >= self.dim() || dim < -self.dim()) return false;
  const c10::SymInt size = self.sym_size(dim);
  if (!size.maybe_as_int() || *size.maybe_as_int() == 0) return false;  // how many there are
  (*stack)[first + 1] = c10::IValue((*size.maybe_as_int() + chunks - 1) / chunks);
  const std::string name(op.facts.instead);
  const size_t dot = name.find('.');
  c10::Dispatcher::singleton()
      .findSchemaOrThrow(name.substr(0, dot).c_str(), name.substr(dot + 1).c_str())
      .callBoxed(stack);
  return true;
}

// A write through x.conj() leaves the conjugate bit on the value of x. The views of complex numbers
// as real ones don't take such a value, so x is given one without the bit first.
void resolve_written(const OpInfo& op, const Stack& stack, size_t first) {
  if (op.facts.recording != Recording::reads_bits) return;
  const at::Tensor& self = stack[first].toTensor();
  if (!isFunctionalTensor(self) || self.is_conj()) return;
  using namespace at::functionalization::impl;
  sync(self);
  if (!from_functional_tensor(self).is_conj()) return;
  const at::NoGradGuard no_grad;
  write_functional(self, from_functional_tensor(self.clone()));
}

void refuse_storage(Recorder& recorder, const OpInfo& op, const Stack& stack, size_t first) {
  for (size_t i = first; i < stack.size(); ++i)
    if (stack[i].isStorage())
      recorder.refuse(
          op.name.str() +
          " takes a tensor's memory as such, which a recording tensor does not have. cuDNN's "
          "LSTM and GRU do so: record those under torch.backends.cudnn.flags(enabled=False)");
}

// The derivative of sgn(), and tangents that are not there. A product with them is zero, whatever the
// other factor is; a kernel would read memory.
void refuse_without_memory(Recorder& recorder, const OpInfo& op) {
  if (op.name == names::kZerosWithoutMemory && !recorder.only_calls())
    recorder.refuse(op.name.str() + " makes zeros without memory");
}

void refuse_foreign_mutation(Recorder& recorder, const OpInfo& op) {
  if (!op.is_mutable || !op.is_custom) return;
  recorder.refuse("the custom op " + op.name.str() +
                  " changes its arguments in place; give it a functional form to have it recorded");
}

// Ops that are written down in another way than they are called. False: this one is not, or not
// with these arguments.
bool record_otherwise(Recorder& recorder, const OpInfo& op, Stack* stack, size_t first) {
  switch (op.facts.recording) {
    case Recording::declared: return reroute_silent(op, stack, first);
    case Recording::optimizer: return functionalize_fused(op, stack, first);
    case Recording::on_copy: return record_bernoulli(recorder, op, stack, first);
    case Recording::division: return record_division(recorder, op, stack, first);
    case Recording::polygamma: return rewrite_polygamma(op, stack, first);
    case Recording::one_hot: return rewrite_one_hot(stack, first);
    case Recording::scaled: return record_scaled(op, stack, first);
    case Recording::chunks: return rewrite_chunks(op, stack, first);
    default: break;
  }
  return write_product_by_columns(op, stack, first) || take_eager_path(recorder, op, stack, first);
}

void call_through(Recorder& recorder, const OpInfo& op, DispatchKeySet keys, Stack* stack,
                  size_t first) {
  const InplaceCheck check(recorder, op, *stack, first);
  resolve_written(op, *stack, first);
  std::vector<c10::IValue> arguments;
  if (!op.silent_writes.empty())
    arguments.assign(stack->begin() + static_cast<ptrdiff_t>(first), stack->end());
  // _to_copy leaves functionalization unless the key is switched on explicitly.
  std::optional<c10::impl::IncludeDispatchKeyGuard> stay;
  if (op.facts.recording == Recording::copy) stay.emplace(DispatchKey::Functionalize);
  {
    const AskedIfEmpty asked(op.facts.asks_if_empty);
    op.handle.redispatchBoxed(below_top(keys), stack);
  }
  mark_results(*stack, first);
  for (const auto& [position, value] : recorder.take_silent_writes())
    if (isFunctionalTensor(arguments[position].toTensor()))
      write_functional(arguments[position].toTensor(), value);
  check.after();
}

void top_kernel(const c10::OperatorHandle& handle, DispatchKeySet keys, Stack* stack) {
  const auto local = c10::impl::tls_local_dispatch_key_set();
  if (local.excluded_.has(DispatchKey::Functionalize)) {  // functionalization's own inner calls
    handle.redispatchBoxed(below_top(keys), stack);
    return;
  }
  Recorder* recorder = Recorder::current();
  const size_t first = stack->size() - handle.schema().arguments().size();
  if (recorder) recorder->check_not_refused();
  const OpInfo& op = op_info(handle);
  if (recorder) recorder->enter(op.name);
  if (recorder && record_constant(*recorder, op, stack)) return;
  const Arguments arguments = take_arguments(recorder, stack, first);
  if (!recorder) {
    OpLog* log = OpLog::current();
    if (log && arguments.replaced) log->give_up(OpTrouble::Kind::foreign_tensor, op.name.str());
    if (arguments.replaced)
      handle.callBoxed(stack);
    else if (log && !is_for_transform(*stack, first))
      log->call(op, below_top(keys), stack);
    else {
      if (log) log->pass_transform(op);
      handle.redispatchBoxed(below_top(keys), stack);
    }
    return;
  }
  refuse_without_memory(*recorder, op);
  if (!arguments.any_tensor && record_factory(*recorder, op, keys, stack, first)) return;
  refuse_foreign_mutation(*recorder, op);
  if (op.is_mutable) {
    refuse_storage(*recorder, op, *stack, first);
    refuse_gaps(*recorder, op, *stack, first);
  }
  if (record_otherwise(*recorder, op, stack, first)) return;
  if (arguments.replaced)
    handle.callBoxed(stack);
  else
    call_through(*recorder, op, keys, stack, first);
}

void record_kernel(const c10::OperatorHandle& handle, DispatchKeySet, Stack* stack) {
  Recorder* recorder = Recorder::current();
  if (!recorder)
    raise(handle.schema().name() +
          " was called on a tensor of a recording from a thread that does not take part in it");
  recorder->record(op_info(handle), stack);
}

}  // namespace

void set_raise(void (*raise)(const std::string& message)) { raise_hook = raise; }

TORCH_LIBRARY_IMPL(_, DeferredInit, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&top_kernel>());
}

TORCH_LIBRARY_IMPL(_, Fake, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&record_kernel>());
}

}  // namespace smelt
