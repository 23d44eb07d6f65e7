// Kernel dtypes as LLVM types, and small constants of them.
#pragma once

#include <llvm/IR/DerivedTypes.h>
#include <llvm/IR/IRBuilder.h>

#include "base/dtype.h"

namespace smelt::cpu {

// In registers: b8 is i1, bf16 its bits as i16, f16 is half.
llvm::Type* register_type(llvm::LLVMContext& context, DType dtype);
// In memory: the same, but a byte for b8.
llvm::Type* memory_type(llvm::LLVMContext& context, DType dtype);

inline bool is_signed(DType dtype) {
  return dtype == DType::i8 || dtype == DType::i16 || dtype == DType::i32 || dtype == DType::i64;
}

// `element`, or a vector of it, of as many lanes as the other type has.
inline llvm::Type* with_lanes(llvm::Type* element, llvm::Type* like) {
  if (auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(like))
    return llvm::FixedVectorType::get(element, vector->getNumElements());
  return element;
}
inline llvm::Type* with_lanes(llvm::Type* element, int lanes) {
  return lanes > 1 ? llvm::FixedVectorType::get(element, lanes) : element;
}

// Constants of a scalar or vector type.
inline llvm::Constant* integer_of(llvm::Type* type, int64_t number) {
  return llvm::ConstantInt::get(type, static_cast<uint64_t>(number), true);
}

}  // namespace smelt::cpu
