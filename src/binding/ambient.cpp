// PyTorch's thread-local and global switches in four words:
//   0, 1  the thread's included and excluded dispatch keys: autocast, inference mode, dispatch
//         modes, function transforms, tracing by torch.jit
//   2     grad mode, default dtype, global flags; dtypes and cache of autocast
//   3     modes of torch functions (which a default device is too), saved tensor hooks, anomaly
//         mode
// It is read in front of every compiled call.
#include <ATen/Context.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/SavedTensorHooks.h>
#include <ATen/autocast_mode.h>
#include <c10/core/AutogradState.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/PyInterpreter.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/python_variable.h>

#ifdef __SSE__
#include <xmmintrin.h>
#endif

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "aten/keys.h"
#include "binding/tensors.h"
#include "capture/bytecode/cpython/known_types.h"
#include "capture/bytecode/cpython/object.h"

namespace smelt {

using namespace bytecode;
namespace {

using at::impl::PythonTorchFunctionTLS;
using c10::DispatchKey;
using c10::DispatchKeySet;

struct Field {
  const char* name;
  int word, shift, bits;
};
// In the order they are packed.
constexpr std::array kFields = {
    Field{"grad mode", 2, 0, 1},
    Field{"forward-mode grad", 2, 1, 1},
    Field{"view replay", 2, 2, 1},
    Field{"autocast's cache", 2, 3, 1},
    Field{"deterministic algorithms", 2, 4, 1},
    Field{"deterministic algorithms, warnings only", 2, 5, 1},
    Field{"filling of uninitialised memory", 2, 6, 1},
    Field{"cuDNN", 2, 7, 1},
    Field{"cuDNN's benchmark mode", 2, 8, 1},
    Field{"cuDNN's deterministic mode", 2, 9, 1},
    Field{"oneDNN", 2, 10, 1},
    Field{"flash attention", 2, 11, 1},
    Field{"memory-efficient attention", 2, 12, 1},
    Field{"plain attention", 2, 13, 1},
    Field{"cuDNN's attention", 2, 14, 1},
    Field{"a back end's attention", 2, 15, 1},
    Field{"default dtype", 2, 16, 8},
    Field{"autocast's dtype on the CPU", 2, 24, 8},
    Field{"autocast's dtype on CUDA", 2, 32, 8},
    Field{"precision of float32 products on the CPU", 2, 40, 3},
    Field{"precision of float32 convolutions on the CPU", 2, 43, 3},
    Field{"precision of float32 products on CUDA", 2, 46, 3},
    Field{"precision of float32 convolutions on CUDA", 2, 49, 3},
    Field{"precision of float32 RNNs on CUDA", 2, 52, 3},
    Field{"reduced precision in float16 products", 2, 55, 2},
    Field{"reduced precision in bfloat16 products", 2, 57, 2},
    Field{"accumulation in float16", 2, 59, 1},
    Field{"flushing of denormal numbers", 2, 60, 1},
    Field{"switching off of torch functions", 3, 0, 2},
    Field{"anomaly mode", 3, 2, 1},
    Field{"a ban on saved tensor hooks", 3, 3, 1},
    Field{"number of saved tensor hooks", 3, 4, 12},
    Field{"number of dispatch modes", 3, 16, 8},
    Field{"torch function modes or default device", 3, 24, 40},
};

constexpr DispatchKeySet kTop = DispatchKeySet(kTopKey);

uint64_t mix(uint64_t hash, uint64_t value) {
  hash ^= value + 0x9e3779b97f4a7c15ull + (hash << 6) + (hash >> 2);
  return hash * 0xff51afd7ed558ccdull;
}

// The modes on the stack, outermost first. One that sets a device is known by the device: `with
// torch.device(...)` makes a new one each time.
uint64_t function_modes() {
  const int64_t count = PythonTorchFunctionTLS::stack_len();
  if (count == 0) return 0;
  uint64_t hash = static_cast<uint64_t>(count);
  for (int64_t i = 0; i < count; ++i) {
    PyObject* mode = PythonTorchFunctionTLS::get_stack_at(i)->ptr(getPyInterpreter());
    hash = mix(hash, reinterpret_cast<uintptr_t>(Py_TYPE(mode)));
    const bool sets_device = is_exactly(mode, KnownType::device_context);
    const Object device =
        Object::steal(sets_device ? PyObject_GetAttrString(mode, "device") : nullptr);
    PyErr_Clear();
    if (device && THPDevice_Check(device.get())) {
      const c10::Device own = reinterpret_cast<THPDevice*>(device.get())->device;
      hash = mix(hash, std::hash<c10::Device>()(own));
    } else {
      hash = mix(hash, reinterpret_cast<uintptr_t>(mode));
    }
  }
  return hash;
}

std::string name_of(DispatchKey key) {
  switch (key) {
    case DispatchKey::AutocastCPU: return "autocast on the CPU";
    case DispatchKey::AutocastCUDA: return "autocast on CUDA";
    case DispatchKey::Python: return "a dispatch mode";
    case DispatchKey::FuncTorchDynamicLayerFrontMode: return "a function transform";
    case DispatchKey::Tracer: return "tracing by torch.jit";
    default: return std::string("the dispatch key ") + c10::toString(key);
  }
}

// float32's precisions. TF32 and the like can be switched by two generations of functions, which
// all end up here.
uint64_t precisions(const at::Context& context, bool has_cuda) {
  uint64_t word = 0;
  const auto put = [&](int shift, at::Float32Backend backend, at::Float32Op op) {
    word |= static_cast<uint64_t>(context.float32Precision(backend, op)) << shift;
  };
  put(40, at::Float32Backend::MKLDNN, at::Float32Op::MATMUL);
  put(43, at::Float32Backend::MKLDNN, at::Float32Op::CONV);
  if (!has_cuda) return word;
  put(46, at::Float32Backend::CUDA, at::Float32Op::MATMUL);
  put(49, at::Float32Backend::CUDA, at::Float32Op::CONV);
  put(52, at::Float32Backend::CUDA, at::Float32Op::RNN);
  word |= static_cast<uint64_t>(context.allowFP16ReductionCuBLAS()) << 55;
  word |= static_cast<uint64_t>(context.allowBF16ReductionCuBLAS()) << 57;
  word |= static_cast<uint64_t>(context.allowFP16AccumulationCuBLAS()) << 59;
  return word;
}

// torch.set_flush_denormal sets it for the thread; nothing but the processor tells.
bool flushes_denormals() {
#ifdef __SSE__
  constexpr unsigned kFlushToZero = 0x8000;
  return (_mm_getcsr() & kFlushToZero) != 0;
#else
  return false;
#endif
}

// Each key whose state differs, by what its bit means.
void add_keys(std::vector<std::string>& parts, DispatchKeySet was, DispatchKeySet is,
              bool set_is_on) {
  const auto add = [&](DispatchKeySet keys, bool on) {
    for (DispatchKey key : keys)
      parts.push_back(name_of(key) + (on ? " was off, is on" : " was on, is off"));
  };
  add(is - was, set_is_on);
  add(was - is, !set_is_on);
}

}  // namespace

Ambient read_ambient() {
  Ambient ambient;
  const c10::impl::LocalDispatchKeySet keys = c10::impl::tls_local_dispatch_key_set();
  ambient.word[0] = (keys.included_ - kTop).raw_repr();
  ambient.word[1] = keys.excluded_.raw_repr();

  const c10::AutogradState& autograd = c10::AutogradState::get_tls_state();
  const at::Context& context = at::globalContext();
  uint64_t word = 0;
  const auto put = [&](int shift, uint64_t value) { word |= value << shift; };
  put(0, autograd.get_grad_mode());
  put(1, autograd.get_fw_grad_mode());
  put(2, autograd.get_view_replay_enabled());
  put(4, context.deterministicAlgorithms());
  put(5, context.deterministicAlgorithmsWarnOnly());
  put(6, context.deterministicFillUninitializedMemory());
  put(10, context.userEnabledMkldnn());
  put(11, context.userEnabledFlashSDP());
  put(13, context.userEnabledMathSDP());
  static const bool has_cuda = at::Context::hasCUDA();
  if (has_cuda) {
    put(7, context.userEnabledCuDNN());
    put(8, context.benchmarkCuDNN());
    put(9, context.deterministicCuDNN());
    put(12, context.userEnabledMemEfficientSDP());
    put(14, context.userEnabledCuDNNSDP());
    put(15, context.userEnabledOverrideableSDP());
  }
  word |= precisions(context, has_cuda);
  put(16, static_cast<uint8_t>(c10::get_default_dtype_as_scalartype()));
  put(60, flushes_denormals());
  // Also where autocast is off: code may ask for them, and regions in it take them over.
  put(3, at::autocast::is_autocast_cache_enabled());
  put(24, static_cast<uint8_t>(at::autocast::get_autocast_dtype(c10::kCPU)));
  put(32, static_cast<uint8_t>(at::autocast::get_autocast_dtype(c10::kCUDA)));
  ambient.word[2] = std::exchange(word, 0);

  put(2, torch::autograd::AnomalyMode::is_enabled());
  if (autograd.get_grad_mode()) {
    const auto& hooks = at::SavedTensorDefaultHooks::get_tls_state();
    put(3, hooks.disabled_error_message.has_value());
    put(4, std::min<uint64_t>(hooks.stack.size(), 0xfff));
  }
  if (keys.included_.has(DispatchKey::Python))
    put(16, static_cast<uint64_t>(c10::impl::TorchDispatchModeTLS::stack_len()) & 0xff);
  put(0, static_cast<uint64_t>(PythonTorchFunctionTLS::get_disabled_state()));
  if (at::impl::torch_function_mode_enabled()) {
    put(24, function_modes() & 0xff'ffff'ffff);
  }
  ambient.word[3] = word;
  return ambient;
}

std::optional<LogTrouble> refuse_ambient() {
  const DispatchKeySet included = c10::impl::tls_local_dispatch_key_set().included_;
  if (included.has(DispatchKey::Python) || c10::impl::dispatch_mode_enabled())
    return LogTrouble{BreakReason::subclass, "TorchDispatchMode"};
  if (included.has(DispatchKey::FuncTorchDynamicLayerFrontMode))
    return LogTrouble{BreakReason::transform, "vmap, grad or another one of torch.func"};
  if (included.has(DispatchKey::Tracer))
    return LogTrouble{BreakReason::transform, "torch.jit.trace"};
  if (!at::impl::torch_function_mode_enabled()) return std::nullopt;
  for (int64_t i = 0; i < PythonTorchFunctionTLS::stack_len(); ++i) {
    PyObject* mode = PythonTorchFunctionTLS::get_stack_at(i)->ptr(getPyInterpreter());
    if (!is_exactly(mode, KnownType::device_context))
      return LogTrouble{BreakReason::subclass, Py_TYPE(mode)->tp_name};
  }
  return std::nullopt;
}

std::string ambient_difference(const Ambient& was, const Ambient& is) {
  const auto keys = [](uint64_t word) { return DispatchKeySet(DispatchKeySet::RAW, word); };
  // Of the keys that inference mode switches, this one tells the story.
  const bool inference_was = !keys(was.word[0]).has(DispatchKey::ADInplaceOrView);
  const bool inference_is = !keys(is.word[0]).has(DispatchKey::ADInplaceOrView);
  std::vector<std::string> parts;
  DispatchKeySet rest = DispatchKeySet(DispatchKeySet::FULL);
  if (inference_was != inference_is) {
    parts.push_back(std::string("inference mode ") +
                    (inference_is ? "was off, is on" : "was on, is off"));
    rest = rest - c10::autograd_dispatch_keyset_with_ADInplaceOrView;
  }
  add_keys(parts, keys(was.word[0]) & rest, keys(is.word[0]) & rest, true);
  add_keys(parts, keys(was.word[1]) & rest, keys(is.word[1]) & rest, false);
  for (const Field& field : kFields) {
    const uint64_t mask = (1ull << field.bits) - 1;
    const uint64_t before = was.word[field.word] >> field.shift & mask;
    const uint64_t now = is.word[field.word] >> field.shift & mask;
    if (before == now) continue;
    std::string text = field.name;
    if (field.bits == 1)
      text += std::string(" was ") + (before ? "on" : "off") + ", is " + (now ? "on" : "off");
    else if (field.bits == 8 && field.word == 2)
      text += std::string(" was ") + c10::toString(static_cast<c10::ScalarType>(before)) + ", is " +
              c10::toString(static_cast<c10::ScalarType>(now));
    else
      text += " changed";
    parts.push_back(std::move(text));
  }
  std::string all;
  for (const std::string& part : parts) all += (all.empty() ? "" : "; ") + part;
  return all;
}

}  // namespace smelt
