#include "aten/find_op.h"

#include <ATen/Context.h>

#include "base/error.h"
#include "ops/facts.h"
#include "ops/names.h"

namespace smelt {

namespace {

std::optional<c10::OperatorHandle> look_up(const std::string& name) {
  const size_t dot = name.find('.');
  const std::string base = name.substr(0, dot);
  const std::string overload = dot == std::string::npos ? "" : name.substr(dot + 1);
  return c10::Dispatcher::singleton().findSchema({base, overload});
}

}  // namespace

bool has_cpu_op(OpName name) {
  if (library_of(name) == Library::mkldnn && !at::globalContext().userEnabledMkldnn()) return false;
  const auto handle = look_up(name.str());
  return handle && handle->hasKernelForDispatchKey(c10::DispatchKey::CPU);
}

bool onednn_takes(DType dtype) {
  if (dtype != DType::f16 && dtype != DType::bf16) return dtype == DType::f32;
  const auto handle =
      look_up((dtype == DType::bf16 ? names::kOnednnTakesBf16 : names::kOnednnTakesF16).str());
  if (!handle) return false;
  torch::jit::Stack stack;
  handle->callBoxed(&stack);
  return stack.size() == 1 && stack[0].isBool() && stack[0].toBool();
}

c10::OperatorHandle find_op(const std::string& name) {
  const auto handle = look_up(name);
  if (!handle) throw Error("this PyTorch has no op " + name + ", which the program calls");
  return *handle;
}

c10::OperatorHandle op_of_zeros() { return find_op(names::kZeros.str()); }

}  // namespace smelt
