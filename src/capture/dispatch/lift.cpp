// How real tensors enter a recording: each gets one twin, an input of the graph.
#include <ATen/Context.h>
#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <numeric>

#include "aten/convert.h"
#include "aten/keys.h"
#include "capture/dispatch/recorder.h"

namespace smelt {
namespace {

Decision can_lift(const at::Tensor& real) {
  const auto forbid = [](std::string what) {
    return Decision::forbid(what + " can't take part in a recording yet");
  };
  if (real.layout() != c10::kStrided)
    return forbid("a tensor of layout " + std::string(c10::str(real.layout())));
  if (real.is_quantized()) return forbid("a quantized tensor");
  if (real.is_nested()) return forbid("a nested tensor");
  if (real.key_set().has(c10::DispatchKey::Python))
    return forbid("a tensor subclass with __torch_dispatch__");
  if (recording_inside(real))
    return Decision::forbid(
        "a tensor that was made in an earlier recording has no contents; return it from the "
        "recorded function instead of storing it");
  if (recording_inside(real))
    return Decision::forbid(
        "a tensor that was made in an earlier recording has no contents; return it from the "
        "function that was recorded there instead of storing it");
  if (at::functionalization::impl::isFunctionalTensor(real))
    return forbid("a functional tensor of another tracer");
  if (!to_dtype(real.scalar_type()))
    return forbid("a tensor of dtype " + std::string(c10::toString(real.scalar_type())));
  if (!real.is_cpu() && !real.is_cuda()) return forbid("a tensor on device " + real.device().str());
  if (!real.has_storage()) return forbid("a tensor without storage");
  return Decision::allow();
}

// Hangs on a twin and leads back to the real tensor. Copies of the twin carry it too, hence `twin`.
struct RealTensor final : c10::BackendMeta {
  RealTensor(at::Tensor r, const c10::TensorImpl* t) : real(std::move(r)), twin(t) {}
  at::Tensor real;
  const c10::TensorImpl* twin;
};

}  // namespace

Sizes symbolic_strides(const Sizes& sizes, at::IntArrayRef strides, const SymbolTable& symbols) {
  std::vector<int> order(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return strides[a] != strides[b] ? strides[a] < strides[b] : a > b;
  });
  Sizes out(sizes.size());
  Size next = 1;
  for (int dim : order) {
    const bool dense = symbols.hint(next) == strides[dim];
    out[dim] = dense ? next : Size(strides[dim]);
    if (dense) next = next * sizes[dim];
  }
  return out;
}

SymbolicDims Recorder::named_dims(const at::Tensor& real, const DynamicDims& dynamic) {
  SymbolicDims dims;
  for (const auto& [dim, name] : dynamic) {
    if (dim < 0 || dim >= real.dim())
      throw Error("dynamic dimension " + std::to_string(dim) + " of an argument with " +
                  std::to_string(real.dim()) + " dimensions; count from 0");
    if (real.size(dim) < 2)
      throw Error("dimension " + std::to_string(dim) + " has size " +
                  std::to_string(real.size(dim)) +
                  " and can't be recorded as dynamic, since sizes 0 and 1 compute differently; "
                  "record with a "
                  "size of at least 2");
    auto it = name.empty() ? named_symbols_.end() : named_symbols_.find(name);
    if (it == named_symbols_.end()) {
      const Size symbol = symbols_->add(real.size(dim), name);
      dims.emplace(dim, symbol);
      if (!name.empty()) named_symbols_.emplace(name, symbol);
      continue;
    }
    if (symbols_->hint(it->second) != real.size(dim))
      throw Error("the dynamic dimension \"" + name + "\" is " +
                  std::to_string(symbols_->hint(it->second)) + " in one argument and " +
                  std::to_string(real.size(dim)) + " in another; give them two names");
    dims.emplace(dim, it->second);
  }
  return dims;
}

TensorType Recorder::input_type(const at::Tensor& real, const SymbolicDims& dims) {
  TensorType type = type_of(real);
  type.wrapped_number = false;
  if (dims.empty()) return type;
  for (const auto& [dim, size] : dims) type.sizes.at(static_cast<size_t>(dim)) = size;
  type.strides = symbolic_strides(type.sizes, real.strides(), *symbols_);
  return type;
}

at::Tensor Recorder::add_argument(const at::Tensor& real, const DynamicDims& dynamic) {
  return add_argument_of(real, [&] { return named_dims(real, dynamic); });
}

at::Tensor Recorder::add_sized_argument(const at::Tensor& real, const SymbolicDims& dims) {
  return add_argument_of(real, [&] { return dims; });
}

at::Tensor Recorder::add_argument_of(const at::Tensor& real,
                                     const std::function<SymbolicDims()>& dims) {
  std::lock_guard lock(mutex_);
  const auto index = static_cast<int32_t>(same_argument_.size());
  same_argument_.push_back(-1);
  if (auto it = input_of_real_.find(real.unsafeGetTensorImpl()); it != input_of_real_.end()) {
    same_argument_.back() = graph_.inputs[it->second].index;
    return inputs_[it->second].twin;
  }
  return lift(real, Source::argument, index, dims());
}

at::Tensor Recorder::twin_of(const at::Tensor& real) {
  std::lock_guard lock(mutex_);
  check_not_refused();
  if (auto it = input_of_real_.find(real.unsafeGetTensorImpl()); it != input_of_real_.end())
    return inputs_[it->second].twin;
  captured_.push_back(real);
  return lift(real, Source::captured, static_cast<int32_t>(captured_.size() - 1), {});
}

at::Tensor Recorder::lift(const at::Tensor& real, Source source, int32_t index,
                          const SymbolicDims& dims) {
  if (const Decision decision = can_lift(real); !decision) refuse(decision.reason());
  if (const at::Generator& own = at::globalContext().defaultGenerator(real.device());
      !options_.only_sizes && !rng_.tracks(own))
    rng_.enter(*this, own);
  const ValueId value =
      graph_.add_input(input_type(real, dims), source, index, real.requires_grad());
  const int32_t input = static_cast<int32_t>(inputs_.size());
  at::Tensor twin = at::functionalization::impl::to_functional_tensor(make_tensor(value));
  auto* storage = twin.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  storage->set_throw_on_mutable_data_ptr();
  twin.unsafeGetTensorImpl()->set_backend_meta(
      c10::make_intrusive<RealTensor>(real, twin.unsafeGetTensorImpl()));
  if (real.requires_grad()) twin.set_requires_grad(true);
  inputs_.push_back({real, twin, storage, {}, real.is_leaf()});
  input_of_real_.emplace(real.unsafeGetTensorImpl(), input);
  input_of_twin_.emplace(twin.unsafeGetTensorImpl(), input);
  if (real.is_leaf() && real.requires_grad()) copy_hooks(real, twin);
  if (real.is_leaf() && real.grad().defined()) {
    at::Tensor grad = real.grad();
    auto known = input_of_real_.find(grad.unsafeGetTensorImpl());
    inputs_[input].twin_grad = known != input_of_real_.end() ? inputs_[known->second].twin
                                                             : lift(grad, Source::grad, input, {});
    twin.mutable_grad() = inputs_[input].twin_grad;
  }
  if (options_.on_lift) options_.on_lift(real, twin);
  return twin;
}

at::Tensor Recorder::real_of_twin(const at::Tensor& twin) {
  const auto* meta = dynamic_cast<RealTensor*>(twin.unsafeGetTensorImpl()->get_backend_meta());
  return meta && meta->twin == twin.unsafeGetTensorImpl() ? meta->real : at::Tensor();
}

// Hooks live in the real tensor's autograd state. C++ ones are shared with the twin here, Python
// ones by the side that knows Python (on_lift); hooks on the accumulation node itself can't be.
void Recorder::copy_hooks(const at::Tensor& real, const at::Tensor& twin) {
  using namespace torch::autograd;
  if (auto accumulator = impl::try_get_grad_accumulator(real))
    if (!accumulator->post_hooks().empty() || !accumulator->pre_hooks().empty())
      refuse(
          "a parameter has hooks on its gradient accumulation (DistributedDataParallel sets such), "
          "which a "
          "recording would not call");
  const AutogradMeta* meta = impl::get_autograd_meta(real);
  if (!meta || !meta->cpp_hooks_list_) return;
  impl::create_cpp_hook(twin);
  *impl::get_autograd_meta(twin)->cpp_hooks_list_ = *meta->cpp_hooks_list_;
}

}  // namespace smelt
