// PyTorch's switches that no op here depends on, but code may ask for: cuDNN's where there is no
// CUDA, kernels of attention of other devices. And some that ops do depend on, which may be read,
// and set to what they are. What is read is a guard (Reading), what is set is
// set again by each cached call. Before the first change all that could be read later is guarded:
// from then on a reading tells of the state at the start and of the changes, both of which are
// known.
#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_set>

#include "capture/bytecode/cpython/libraries.h"
#include "capture/bytecode/torch/torch_calls.h"
#include "capture/bytecode/values/operations.h"

namespace smelt::bytecode {
namespace {

using Set = std::unordered_set<std::string_view>;

struct Getter {
  const char* name;
  const char *backend = nullptr, *op = nullptr;  // its arguments
};

// State that is changed together, by functions some of which change several parts of it.
struct Group {
  std::vector<Getter> getters;
  Set setters;

  bool reads(std::string_view name) const {
    return std::ranges::any_of(getters, [&](const Getter& getter) { return getter.name == name; });
  }
};

const Group& attention() {
  static const Group group{
      {{"_get_mem_efficient_sdp_enabled"},
       {"_get_cudnn_sdp_enabled"},
       {"_get_overrideable_sdp_enabled"}},
      {"_set_sdp_use_mem_efficient", "_set_sdp_use_cudnn", "_set_sdp_use_overrideable"}};
  return group;
}

const Group& cudnn() {
  static const Group group{
      {{"_get_cudnn_enabled"},
       {"_get_cudnn_benchmark"},
       {"_get_cudnn_deterministic"},
       {"_get_cudnn_allow_tf32"},
       {"_get_cudnn_depthwise_kernel"},
       {"_get_cublas_allow_tf32"},
       {"_get_float32_matmul_precision"},
       {"_get_fp32_precision_getter", "generic", "all"},
       {"_get_fp32_precision_getter", "mkldnn", "matmul"},
       {"_get_fp32_precision_getter", "mkldnn", "conv"},
       {"_get_fp32_precision_getter", "cuda", "all"},
       {"_get_fp32_precision_getter", "cuda", "conv"},
       {"_get_fp32_precision_getter", "cuda", "rnn"},
       {"_get_fp32_precision_getter", "cuda", "matmul"}},
      {"_set_cudnn_enabled", "_set_cudnn_benchmark", "_set_cudnn_deterministic",
       "_set_cudnn_allow_tf32", "_set_cudnn_depthwise_kernel", "_set_fp32_precision_setter",
       "_set_cublas_allow_tf32", "_set_float32_matmul_precision"}};
  return group;
}

const Group& determinism() {
  static const Group group{
      {{"_get_deterministic_algorithms_warn_only"},
       {"_get_deterministic_fill_uninitialized_memory"}},
      {"_set_deterministic_algorithms", "_set_deterministic_fill_uninitialized_memory"}};
  return group;
}

// Nothing of this is set by code that is followed.
const Group& others() {
  static const Group group{{{"get_num_threads"},
                            {"get_num_interop_threads"},
                            {"_get_privateuse1_backend_name"},
                            {"_get_default_device"},
                            {"_is_default_mobile_cpu_allocator_set"},
                            {"_cuda_isCurrentStreamCapturing"},
                            {"_cuda_isInBadFork"},
                            {"_cuda_getDevice"},
                            {"_dispatch_has_kernel"}},
                           {}};
  return group;
}

Object core_function(const char* name) {
  const Object core = Object::steal(PyImport_ImportModule("torch._C"));
  Object found = Object::steal(core ? PyObject_GetAttrString(core.get(), name) : nullptr);
  PyErr_Clear();
  return found;
}

// Here these switches are ops' business.
bool has_cuda() {
  static const bool has = core_function("_has_cuda").get() == Py_True;
  return has;
}

void guard_all(Trace& trace, const Group& group) {
  const Unfollowed unfollowed(&trace, false);
  for (const Getter& getter : group.getters) {
    const Object function = core_function(getter.name);
    if (!function) continue;  // another PyTorch
    const Object arguments =
        Object::steal(getter.backend == nullptr ? PyTuple_New(0)
                                                : Py_BuildValue("(ss)", getter.backend, getter.op));
    trace.read_state(function.get(), arguments.get());
  }
}

// The precision of what CUDA computes; of others ops on the CPU take note.
bool sets_cuda_only(std::string_view name, std::span<const Value> arguments) {
  return name != "_set_fp32_precision_setter" ||
         (!arguments.empty() && PyUnicode_Check(arguments[0].object) &&
          PyUnicode_CompareWithASCIIString(arguments[0].object, "cuda") == 0);
}

bool read_state(Trace& trace, const Group& group, Value callee, std::span<const Value> arguments,
                Result* result) {
  for (const Value& argument : arguments) trace.use(argument);
  const Object asked = as_tuple(arguments);
  if (trace.state.changed.contains(&group) && !trace.has_read(callee.object, asked.get()))
    return false;
  {
    const Unfollowed unfollowed(&trace, false);
    result->object = call_plainly(callee.object, arguments, nullptr);
  }
  if (result->object == nullptr) return true;
  if (!is_constant(result->object)) {
    trace.stop(BreakReason::unknown_object, Py_TYPE(result->object)->tp_name);
    return true;
  }
  trace.guard_reading(callee.object, asked.get(), result->object);
  return true;
}

// What they say is the same as long as the process is on the same device.
bool tells_of_gpus(PyObject* function) {
  return std::ranges::any_of(
      std::array{"is_bf16_supported", "device_count", "get_device_capability", "get_device_name"},
      [&](const char* name) { return is_function_of(function, "torch.cuda", name); });
}

// Before that, what they say depends on the environment.
bool uses_gpus() {
  const Object cuda = Object::steal(PyImport_ImportModule("torch.cuda"));
  const Object yes =
      Object::steal(cuda ? PyObject_GetAttrString(cuda.get(), "_initialized") : nullptr);
  PyErr_Clear();
  return yes.get() == Py_True;
}

}  // namespace

bool call_about_gpus(Trace& trace, Value function, std::span<const Value> arguments,
                     PyObject* keywords, Result* result) {
  if (!tells_of_gpus(function.object) || keywords != nullptr || !uses_gpus() ||
      !std::ranges::all_of(arguments, [](Value v) { return is_constant(v.object); }))
    return false;
  const Object device = core_function("_cuda_getDevice"), none = Object::steal(PyTuple_New(0));
  if (!device || !none) return false;
  trace.use(function);
  for (const Value& argument : arguments) trace.use(argument);
  const Unfollowed unfollowed(&trace, false);
  trace.read_state(device.get(), none.get());
  result->object = call_plainly(function.object, arguments, nullptr);
  return true;
}

bool call_state(Trace& trace, Value callee, std::span<const Value> arguments, PyObject* keywords,
                Result* result) {
  if (!PyCFunction_Check(callee.object)) return false;
  const std::string_view name = reinterpret_cast<PyCFunctionObject*>(callee.object)->m_ml->ml_name;
  for (const Group* group : {&attention(), &cudnn(), &determinism(), &others()}) {
    if (group->reads(name))
      return keywords == nullptr && read_state(trace, *group, callee, arguments, result);
    if (!group->setters.contains(name)) continue;
    if ((group == &cudnn() && has_cuda()) || !sets_cuda_only(name, arguments) ||
        !std::ranges::all_of(arguments, [](Value v) { return is_constant(v.object); }))
      return false;
    guard_all(trace, *group);
    trace.state.changed.insert(group);
    const Ambient before = tensors().ambient();
    *result = call_switch(trace, callee, arguments, keywords);
    // What ops depend on is switched for real: those behind it belong to another graph.
    if (group != &attention() && tensors().ambient() != before)
      trace.stop(BreakReason::state, std::string("torch's ").append(name));
    return true;
  }
  return false;
}

}  // namespace smelt::bytecode
