// The few passes over the instructions that pay for their time: the emitter writes loops that are
// already hoisted and vectorised, so what is left are equal and foldable instructions.
#pragma once

#include <llvm/IR/Module.h>

namespace smelt::cpu {

void simplify_ir(llvm::Module& module);

}  // namespace smelt::cpu
