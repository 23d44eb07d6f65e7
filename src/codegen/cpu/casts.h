// Conversions between dtypes.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include "base/dtype.h"

namespace smelt::cpu {

// A scalar or vector converted as nodes.def says of cast.
llvm::Value* emit_cast(llvm::IRBuilder<>& ir, llvm::Value* value, DType from, DType to);

// What a load brings, as it is kept in registers, and back.
llvm::Value* from_memory(llvm::IRBuilder<>& ir, llvm::Value* value, DType dtype);
llvm::Value* to_memory(llvm::IRBuilder<>& ir, llvm::Value* value, DType dtype);

}  // namespace smelt::cpu
