// Built without LLVM: every kernel is refused, and ops go through the dispatcher.
#include "codegen/cpu/cpu_module.h"

namespace smelt {

Decision can_compile_cpu(const loops::Kernel&) { return Decision::forbid("built without LLVM"); }

std::shared_ptr<const CpuModule> compile_cpu(std::span<const loops::Kernel* const>,
                                             const CpuOptions&) {
  SMELT_CHECK(false, "built without LLVM");
  return nullptr;
}

std::string cpu_target() { return "none"; }

}  // namespace smelt
