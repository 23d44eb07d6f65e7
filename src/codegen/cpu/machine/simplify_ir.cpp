#include "codegen/cpu/machine/simplify_ir.h"

#include <llvm/Analysis/AssumptionCache.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/Transforms/InstCombine/InstCombine.h>
#include <llvm/Transforms/Scalar.h>
#include <llvm/Transforms/Utils.h>

namespace smelt::cpu {

void simplify_ir(llvm::Module& module) {
  llvm::legacy::FunctionPassManager passes(&module);
  passes.add(llvm::createPromoteMemoryToRegisterPass());
  passes.add(llvm::createEarlyCSEPass());
  passes.doInitialization();
  for (llvm::Function& function : module) passes.run(function);
  passes.doFinalization();
}

}  // namespace smelt::cpu
