// Guards on tensors: type, dispatch keys (device type, layout, conj and neg bits, inference),
// dtype, device, requires_grad, sizes, strides, and whether a backward pass calls hooks for it.
#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "aten/keys.h"
#include "aten/transforms.h"
#include "binding/tensors.h"
#include "capture/bytecode/cpython/object.h"

namespace smelt {

using namespace bytecode;
namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;

const char* switched(bool on) { return on ? "on" : "off"; }

bool has_strides(const at::Tensor& tensor) {
  return tensor.layout() == c10::kStrided && !tensor.is_nested();
}
bool has_plain_sizes(const at::Tensor& tensor) {
  return !tensor.is_nested() && !tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides();
}

// Code that a backward pass which comes to the tensor calls. A program that makes the pass itself
// knows only of what was there when it was made.
bool has_hooks(const torch::autograd::AutogradMeta* meta) {
  if (meta == nullptr) return false;
  if (!meta->hooks_.empty() || meta->post_acc_grad_hooks_ != nullptr) return true;
  const auto leaf = meta->grad_accumulator_.lock();
  return leaf && (!leaf->pre_hooks().empty() || !leaf->post_hooks().empty());
}
bool has_hooks(const at::Tensor& tensor) {
  return has_hooks(torch::autograd::impl::get_autograd_meta(tensor));
}

// Strides of a tensor whose sizes vary: those that pack its dimensions densely, innermost first,
// follow from the sizes; the others are what they are (Recorder has them so too).
class DenseStrides {
 public:
  DenseStrides() = default;
  DenseStrides(at::IntArrayRef sizes, at::IntArrayRef strides) : is_dense_(sizes.size()) {
    order_.resize(sizes.size());
    std::iota(order_.begin(), order_.end(), 0);
    std::ranges::stable_sort(order_, [&](size_t a, size_t b) {
      return strides[a] != strides[b] ? strides[a] < strides[b] : a > b;
    });
    int64_t next = 1;
    for (const size_t dim : order_) {
      is_dense_[dim] = strides[dim] == next;
      if (is_dense_[dim]) next *= sizes[dim];
    }
  }
  // The first dimension at which they are not so; `fixed`: the strides of the others.
  std::optional<size_t> broken(at::IntArrayRef sizes, at::IntArrayRef strides,
                               const int64_t* fixed) const {
    int64_t next = 1;
    for (const size_t dim : order_) {
      if (strides[dim] != (is_dense_[dim] ? next : fixed[dim])) return dim;
      if (is_dense_[dim]) next *= sizes[dim];
    }
    return std::nullopt;
  }

 private:
  c10::SmallVector<size_t, 5> order_;  // of dimensions
  c10::SmallVector<bool, 5> is_dense_;
};

class MetadataGuard final : public TensorGuard {
 public:
  MetadataGuard(PyObject* object, std::span<const int> varying)
      : type_(Object::share(reinterpret_cast<PyObject*>(Py_TYPE(object)))) {
    const at::Tensor& tensor = THPVariable_Unpack(object);
    keys_ = tensor.key_set().raw_repr();
    dtype_ = tensor.scalar_type();
    device_ = tensor.device();
    requires_grad_ = tensor.requires_grad();
    hooked_ = requires_grad_ && has_hooks(tensor);
    if (!has_plain_sizes(tensor)) {
      never_ = true;
      return;
    }
    dim_ = static_cast<size_t>(tensor.dim());
    strided_ = has_strides(tensor);
    shape_.append(tensor.sizes().begin(), tensor.sizes().end());
    if (strided_) shape_.append(tensor.strides().begin(), tensor.strides().end());
    if (varying.empty()) return;
    auto made = std::make_unique<Varying>();
    made->dims.resize(dim_);
    for (const int dim : varying) made->dims[static_cast<size_t>(dim)] = true;
    made->strides = DenseStrides(tensor.sizes(), tensor.strides());
    varying_ = std::move(made);
  }

  // A cached call asks this of each parameter.
  [[gnu::flatten]] bool holds(PyObject* object) const override {
    if (Py_TYPE(object) != reinterpret_cast<PyTypeObject*>(type_.get())) return false;
    const at::Tensor& tensor = THPVariable_Unpack(object);
    const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
    if (impl->key_set().raw_repr() != keys_ || never_) return false;
    if (c10::typeMetaToScalarType(impl->dtype()) != dtype_ || impl->device() != device_)
      return false;
    // As TensorImpl::requires_grad() and get_autograd_meta() find them, for a parameter with one call
    // instead of four.
    const auto* meta = static_cast<const torch::autograd::AutogradMeta*>(impl->autograd_meta());
    const bool requires_grad = meta != nullptr && (meta->requires_grad_ || meta->requires_grad());
    if (requires_grad != requires_grad_ || (requires_grad && has_hooks(meta) != hooked_))
      return false;
    const c10::IntArrayRef sizes = impl->sizes();
    if (sizes.size() != dim_) return false;
    if (varying_) return holds_for(sizes, impl->strides());
    for (size_t i = 0; i < dim_; ++i)
      if (sizes[i] != shape_[i]) return false;
    if (!strided_) return true;
    const c10::IntArrayRef strides = impl->strides();
    for (size_t i = 0; i < dim_; ++i)
      if (strides[i] != shape_[dim_ + i]) return false;
    return true;
  }

  std::string difference(PyObject* object) const override {
    if (Py_TYPE(object) != reinterpret_cast<PyTypeObject*>(type_.get()))
      return std::string("type is ") + Py_TYPE(object)->tp_name + ", was " + type_name();
    const at::Tensor& tensor = THPVariable_Unpack(object);
    if (tensor.scalar_type() != dtype_)
      return std::string("dtype is ") + c10::toString(tensor.scalar_type()) + ", was " +
             c10::toString(dtype_);
    if (tensor.device() != device_)
      return "device is " + tensor.device().str() + ", was " + device_.str();
    if (tensor.requires_grad() != requires_grad_)
      return std::string("requires_grad is ") + switched(tensor.requires_grad()) + ", was " +
             switched(requires_grad_);
    if (requires_grad_ && has_hooks(tensor) != hooked_)
      return hooked_ ? "it has no hooks, and had some" : "it has hooks, and had none";
    if (tensor.key_set().raw_repr() != keys_)
      return "kind of tensor is " + c10::toString(tensor.key_set()) + ", was " +
             c10::toString(DispatchKeySet(DispatchKeySet::RAW, keys_));
    if (never_ || !has_plain_sizes(tensor)) return "sizes are not plain numbers";
    if (static_cast<size_t>(tensor.dim()) != dim_)
      return "number of dimensions is " + std::to_string(tensor.dim()) + ", was " +
             std::to_string(dim_);
    for (size_t i = 0; i < dim_; ++i)
      if (!fits(i, tensor.size(static_cast<int64_t>(i))))
        return differs("size", i, tensor.size(static_cast<int64_t>(i)), shape_[i]);
    if (varying_) {
      const auto broken = varying_->strides.broken(tensor.sizes(), tensor.strides(), &shape_[dim_]);
      if (!broken) return "";
      return "stride at dimension " + std::to_string(*broken) + " is " +
             std::to_string(tensor.stride(static_cast<int64_t>(*broken))) +
             ", which does not go with its sizes";
    }
    for (size_t i = 0; strided_ && i < dim_; ++i)
      if (tensor.stride(static_cast<int64_t>(i)) != shape_[dim_ + i])
        return differs("stride", i, tensor.stride(static_cast<int64_t>(i)), shape_[dim_ + i]);
    return "";
  }

  std::vector<int> changed_sizes(PyObject* object) const override {
    const std::string change = difference(object);
    if (!change.starts_with("size ") && !change.starts_with("stride ")) return {};
    std::vector<int> changed;
    const at::Tensor& tensor = THPVariable_Unpack(object);
    for (size_t i = 0; i < dim_; ++i)
      if (!fits(i, tensor.size(static_cast<int64_t>(i)))) changed.push_back(static_cast<int>(i));
    return changed;
  }

  std::string str() const override {
    std::string text = type_name() + " " + c10::toString(dtype_) + list(0);
    if (strided_) text += " strides " + list(dim_);
    if (!device_.is_cpu()) text += " on " + device_.str();
    if (requires_grad_) text += " requires_grad";
    return text;
  }

 private:
  std::string type_name() const { return reinterpret_cast<PyTypeObject*>(type_.get())->tp_name; }
  static std::string differs(const char* what, size_t dim, int64_t is, int64_t was) {
    return std::string(what) + " at dimension " + std::to_string(dim) + " is " +
           std::to_string(is) + ", was " + std::to_string(was);
  }
  std::string list(size_t first) const {
    std::string text = "[";
    for (size_t i = 0; i < dim_; ++i)
      text += (i ? ", " : "") +
              (first == 0 && varies(i) ? std::string("any") : std::to_string(shape_[first + i]));
    return text + "]";
  }
  bool varies(size_t dim) const { return varying_ && varying_->dims[dim]; }
  // Sizes 0 and 1 compute differently.
  bool fits(size_t dim, int64_t size) const {
    return varies(dim) ? size >= 2 : size == shape_[dim];
  }
  [[gnu::noinline]] bool holds_for(at::IntArrayRef sizes, at::IntArrayRef strides) const {
    for (size_t i = 0; i < dim_; ++i)
      if (!fits(i, sizes[i])) return false;
    return !varying_->strides.broken(sizes, strides, &shape_[dim_]);
  }

  Object type_;
  uint64_t keys_ = 0;
  c10::ScalarType dtype_ = c10::ScalarType::Undefined;
  c10::Device device_ = c10::kCPU;
  bool requires_grad_ = false;
  bool hooked_ = false;
  bool strided_ = false;
  bool never_ = false;  // of a kind that is not compared
  size_t dim_ = 0;
  struct Varying {
    c10::SmallVector<bool, 5> dims;
    DenseStrides strides;
  };
  std::unique_ptr<const Varying> varying_;  // nullptr: no size varies
  c10::SmallVector<int64_t, 10> shape_;     // sizes, then strides
};

PyObject* lookup(PyTypeObject* type, const char* name) {
  const Object key = Object::steal(PyUnicode_InternFromString(name));
  return _PyType_Lookup(type, key.get());
}

// Does the type bring code that PyTorch calls for ops on its tensors?
bool has_code_of_its_own(PyTypeObject* type) {
  auto* plain = reinterpret_cast<PyTypeObject*>(THPVariableClass);
  if (type == plain || type == reinterpret_cast<PyTypeObject*>(ParameterClass)) return false;
  static PyObject* disabled = [] {  // as parameters have
    return lookup(reinterpret_cast<PyTypeObject*>(ParameterClass), "__torch_function__");
  }();
  PyObject* function = lookup(type, "__torch_function__");
  return (function != lookup(plain, "__torch_function__") && function != disabled) ||
         lookup(type, "__torch_dispatch__") != lookup(plain, "__torch_dispatch__");
}

}  // namespace

std::unique_ptr<TensorGuard> make_tensor_guard(PyObject* tensor, std::span<const int> varying) {
  const bool can_vary =
      has_plain_sizes(THPVariable_Unpack(tensor)) && has_strides(THPVariable_Unpack(tensor));
  return std::make_unique<MetadataGuard>(tensor, can_vary ? varying : std::span<const int>());
}

bool is_tensor_object(PyObject* object) {
  // Asked about most objects that a trace meets; their types have another layout than a tensor's.
  constexpr unsigned long kOthers = Py_TPFLAGS_LONG_SUBCLASS | Py_TPFLAGS_LIST_SUBCLASS |
                                    Py_TPFLAGS_TUPLE_SUBCLASS | Py_TPFLAGS_BYTES_SUBCLASS |
                                    Py_TPFLAGS_UNICODE_SUBCLASS | Py_TPFLAGS_DICT_SUBCLASS |
                                    Py_TPFLAGS_BASE_EXC_SUBCLASS | Py_TPFLAGS_TYPE_SUBCLASS;
  auto* tensor = reinterpret_cast<PyTypeObject*>(THPVariableClass);
  PyTypeObject* type = Py_TYPE(object);
  if (type == tensor) return true;
  if ((type->tp_flags & kOthers) != 0 || type->tp_basicsize < tensor->tp_basicsize) return false;
  return PyType_IsSubtype(type, tensor);
}

std::optional<LogTrouble> refuse_tensor(PyObject* object) {
  const auto trouble = [](BreakReason reason, std::string detail) {
    return LogTrouble{reason, std::move(detail)};
  };
  if (has_code_of_its_own(Py_TYPE(object)))
    return trouble(BreakReason::subclass, Py_TYPE(object)->tp_name);
  const at::Tensor& tensor = THPVariable_Unpack(object);
  const DispatchKeySet keys = tensor.key_set();
  if (keys.has_any(DispatchKeySet({DispatchKey::Python, DispatchKey::Functionalize, kRecordKey})))
    return trouble(BreakReason::subclass, Py_TYPE(object)->tp_name);
  if (is_functorch_wrapper(tensor)) return trouble(BreakReason::transform, "a wrapped tensor");
  if (tensor._fw_grad(0).defined()) return trouble(BreakReason::transform, "forward-mode autograd");
  if (!has_plain_sizes(tensor)) return trouble(BreakReason::subclass, "a nested tensor");
  return std::nullopt;
}

}  // namespace smelt
