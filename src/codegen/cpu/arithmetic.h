// Arithmetic of one instruction on scalars or vectors.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include "loops/kernel.h"

namespace smelt::cpu {

// The op on operands of dtype `dtype` (select: of b and c). Not the ones that can fail.
llvm::Value* emit_arithmetic(llvm::IRBuilder<>& ir, loops::Op op, DType dtype, llvm::Value* a,
                             llvm::Value* b, llvm::Value* c);
// The quotient or remainder of integers (0 for x / 0), and where the divisor is 0.
struct Divided {
  llvm::Value* result;
  llvm::Value* by_zero;
};
Divided emit_integer_division(llvm::IRBuilder<>& ir, bool remainder, DType dtype, llvm::Value* a,
                              llvm::Value* b);

// NaN if one is NaN. Cheaper in b: a loop that carries b waits for two instructions only.
llvm::Value* emit_min(llvm::IRBuilder<>& ir, DType dtype, llvm::Value* a, llvm::Value* b);
llvm::Value* emit_max(llvm::IRBuilder<>& ir, DType dtype, llvm::Value* a, llvm::Value* b);

}  // namespace smelt::cpu
