#include "codegen/cpu/casts.h"

#include <llvm/IR/PatternMatch.h>

#include "base/error.h"
#include "codegen/cpu/types.h"

namespace smelt::cpu {

using llvm::Type;
using llvm::Value;

Type* register_type(llvm::LLVMContext& context, DType dtype) {
  switch (dtype) {
    case DType::b8: return Type::getInt1Ty(context);
    case DType::u8:
    case DType::i8: return Type::getInt8Ty(context);
    case DType::u16:
    case DType::i16:
    case DType::bf16: return Type::getInt16Ty(context);
    case DType::u32:
    case DType::i32: return Type::getInt32Ty(context);
    case DType::u64:
    case DType::i64: return Type::getInt64Ty(context);
    case DType::f16: return Type::getHalfTy(context);
    case DType::f32: return Type::getFloatTy(context);
    case DType::f64: return Type::getDoubleTy(context);
    default: break;
  }
  SMELT_CHECK(false, "no registers for " + std::string(name_of(dtype)));
}

Type* memory_type(llvm::LLVMContext& context, DType dtype) {
  return dtype == DType::b8 ? Type::getInt8Ty(context) : register_type(context, dtype);
}

namespace {

bool is_half(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

Type* shaped(DType dtype, Value* like) {
  return with_lanes(register_type(like->getContext(), dtype), like->getType());
}

Value* widen_half(llvm::IRBuilder<>& ir, Value* value, DType from) {
  Type* f32 = shaped(DType::f32, value);
  if (from == DType::f16) return ir.CreateFPExt(value, f32);
  Value* bits = nullptr;
  using namespace llvm::PatternMatch;
  // What was rounded just now, and is still there as 32 bits.
  if (match(value, m_Trunc(m_LShr(m_Value(bits), m_SpecificInt(16)))))
    return ir.CreateBitCast(ir.CreateAnd(bits, integer_of(bits->getType(), -0x10000)), f32);
  bits = ir.CreateZExt(value, with_lanes(ir.getInt32Ty(), value->getType()));
  return ir.CreateBitCast(ir.CreateShl(bits, integer_of(bits->getType(), 16)), f32);
}

// The processor's own conversion to bf16 takes subnormal numbers for 0, so the rounding is written
// out: half of the last place is added, less if that place is even.
Value* narrow_to_bf16(llvm::IRBuilder<>& ir, Value* value) {
  Type* i32 = with_lanes(ir.getInt32Ty(), value->getType());
  Value* bits = ir.CreateBitCast(value, i32);
  Value* last = ir.CreateAnd(ir.CreateLShr(bits, integer_of(i32, 16)), integer_of(i32, 1));
  Value* rounded = ir.CreateAdd(bits, ir.CreateAdd(last, integer_of(i32, 0x7fff)));
  Value* result =
      ir.CreateSelect(ir.CreateFCmpUNO(value, value), integer_of(i32, 0x7fc00000), rounded);
  return ir.CreateTrunc(ir.CreateLShr(result, integer_of(i32, 16)),
                        with_lanes(ir.getInt16Ty(), value->getType()));
}

Value* float_to_integer(llvm::IRBuilder<>& ir, Value* value, DType to) {
  Type* type = shaped(to, value);
  // Out of range is undefined in C++; what x86 compilers make of it: the low bits of a wider
  // integer.
  if (bytes_of(to) < 4) {
    Value* wide = ir.CreateFPToSI(value, with_lanes(ir.getInt32Ty(), value->getType()));
    return ir.CreateTrunc(ir.CreateFreeze(wide), type);
  }
  if (to == DType::u32) {
    Value* wide = ir.CreateFPToSI(value, with_lanes(ir.getInt64Ty(), value->getType()));
    return ir.CreateTrunc(ir.CreateFreeze(wide), type);
  }
  return ir.CreateFreeze(to == DType::u64 ? ir.CreateFPToUI(value, type)
                                          : ir.CreateFPToSI(value, type));
}

}  // namespace

Value* emit_cast(llvm::IRBuilder<>& ir, Value* value, DType from, DType to) {
  if (from == to) return value;
  // f16 and bf16 are computed as f32, and rounded by way of it: as c10::Half and c10::BFloat16.
  if (is_half(from)) return emit_cast(ir, widen_half(ir, value, from), DType::f32, to);
  if (is_half(to)) {
    Value* f32 = emit_cast(ir, value, from, DType::f32);
    return to == DType::bf16 ? narrow_to_bf16(ir, f32) : ir.CreateFPTrunc(f32, shaped(to, value));
  }
  Type* type = shaped(to, value);
  if (is_floating(from)) {
    if (is_floating(to)) return ir.CreateFPCast(value, type);
    if (to == DType::b8)
      return ir.CreateFCmpUNE(value, llvm::Constant::getNullValue(value->getType()));
    return float_to_integer(ir, value, to);
  }
  if (to == DType::b8) return ir.CreateICmpNE(value, integer_of(value->getType(), 0));
  if (is_floating(to))
    return is_signed(from) ? ir.CreateSIToFP(value, type) : ir.CreateUIToFP(value, type);
  return ir.CreateIntCast(value, type, is_signed(from));
}

Value* from_memory(llvm::IRBuilder<>& ir, Value* value, DType dtype) {
  return dtype == DType::b8 ? ir.CreateICmpNE(value, integer_of(value->getType(), 0)) : value;
}

Value* to_memory(llvm::IRBuilder<>& ir, Value* value, DType dtype) {
  if (dtype != DType::b8) return value;
  return ir.CreateZExt(value, with_lanes(ir.getInt8Ty(), value->getType()));
}

}  // namespace smelt::cpu
