#include "codegen/cpu/arithmetic.h"

#include <llvm/IR/Intrinsics.h>

#include "base/error.h"
#include "codegen/cpu/types.h"
#include "codegen/cpu/vector_math/vector_math.h"

namespace smelt::cpu {

using llvm::Value;
using loops::Op;

namespace {

Value* select_extreme(llvm::IRBuilder<>& ir, DType dtype, Value* a, Value* b, bool greater) {
  if (is_floating(dtype)) {
    Value* second = greater ? ir.CreateFCmpOGT(b, a) : ir.CreateFCmpOLT(b, a);
    Value* ordered = ir.CreateSelect(second, b, a);  // a of two zeros, and if one is NaN
    return ir.CreateSelect(ir.CreateFCmpUNO(b, b), b, ordered);
  }
  using Intrinsic = llvm::Intrinsic::ID;
  const Intrinsic id = is_signed(dtype) ? (greater ? llvm::Intrinsic::smax : llvm::Intrinsic::smin)
                                        : (greater ? llvm::Intrinsic::umax : llvm::Intrinsic::umin);
  return ir.CreateBinaryIntrinsic(id, a, b);
}

Value* emit_compare(llvm::IRBuilder<>& ir, Op op, DType dtype, Value* a, Value* b) {
  const bool floating = is_floating(dtype), sign = is_signed(dtype);
  switch (op) {
    case Op::lt:
      return floating ? ir.CreateFCmpOLT(a, b)
             : sign   ? ir.CreateICmpSLT(a, b)
                      : ir.CreateICmpULT(a, b);
    case Op::le:
      return floating ? ir.CreateFCmpOLE(a, b)
             : sign   ? ir.CreateICmpSLE(a, b)
                      : ir.CreateICmpULE(a, b);
    case Op::eq: return floating ? ir.CreateFCmpOEQ(a, b) : ir.CreateICmpEQ(a, b);
    default: return floating ? ir.CreateFCmpUNE(a, b) : ir.CreateICmpNE(a, b);
  }
}

Value* emit_shift(llvm::IRBuilder<>& ir, Op op, DType dtype, Value* a, Value* b) {
  llvm::Type* type = a->getType();
  const int width = static_cast<int>(type->getScalarSizeInBits());
  // A negative amount is a large one when it is read as unsigned.
  Value* in_range = ir.CreateICmpULT(b, integer_of(type, width));
  if (op == Op::shift_left) {
    Value* amount = ir.CreateSelect(in_range, b, integer_of(type, 0));
    return ir.CreateSelect(in_range, ir.CreateShl(a, amount), integer_of(type, 0));
  }
  Value* amount = ir.CreateSelect(in_range, b, integer_of(type, width - 1));
  return is_signed(dtype) ? ir.CreateAShr(a, amount) : ir.CreateLShr(a, amount);
}

Value* emit_boolean(llvm::IRBuilder<>& ir, Op op, Value* a, Value* b) {
  switch (op) {
    case Op::add:
    case Op::max:
    case Op::bit_or: return ir.CreateOr(a, b);
    case Op::mul:
    case Op::min:
    case Op::bit_and: return ir.CreateAnd(a, b);
    case Op::bit_xor: return ir.CreateXor(a, b);
    case Op::bit_not: return ir.CreateNot(a);
    case Op::abs: return a;
    default: break;
  }
  SMELT_CHECK(false, "no boolean " + std::string(loops::facts_of(op).name));
}

Value* emit_integer(llvm::IRBuilder<>& ir, Op op, DType dtype, Value* a, Value* b) {
  switch (op) {
    case Op::add: return ir.CreateAdd(a, b);
    case Op::sub: return ir.CreateSub(a, b);
    case Op::mul: return ir.CreateMul(a, b);
    case Op::bit_and: return ir.CreateAnd(a, b);
    case Op::bit_or: return ir.CreateOr(a, b);
    case Op::bit_xor: return ir.CreateXor(a, b);
    case Op::bit_not: return ir.CreateNot(a);
    case Op::shift_left:
    case Op::shift_right: return emit_shift(ir, op, dtype, a, b);
    case Op::neg: return ir.CreateNeg(a);
    case Op::abs:
      if (!is_signed(dtype)) return a;
      return ir.CreateBinaryIntrinsic(llvm::Intrinsic::abs, a, ir.getFalse());
    default: break;
  }
  SMELT_CHECK(false, "no integer " + std::string(loops::facts_of(op).name));
}

Value* emit_floating(llvm::IRBuilder<>& ir, Op op, Value* a, Value* b) {
  switch (op) {
    case Op::add: return ir.CreateFAdd(a, b);
    case Op::sub: return ir.CreateFSub(a, b);
    case Op::mul: return ir.CreateFMul(a, b);
    case Op::div: return ir.CreateFDiv(a, b);
    case Op::neg: return ir.CreateFNeg(a);
    case Op::abs: return ir.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, a);
    default: break;
  }
  // The functions choose for themselves what may be contracted.
  llvm::IRBuilder<>::FastMathFlagGuard guard(ir);
  ir.clearFastMathFlags();
  return emit_math(ir, op, a, b);
}

}  // namespace

Value* emit_min(llvm::IRBuilder<>& ir, DType dtype, Value* a, Value* b) {
  return select_extreme(ir, dtype, a, b, false);
}

Value* emit_max(llvm::IRBuilder<>& ir, DType dtype, Value* a, Value* b) {
  return select_extreme(ir, dtype, a, b, true);
}

Value* emit_arithmetic(llvm::IRBuilder<>& ir, Op op, DType dtype, Value* a, Value* b, Value* c) {
  if (op == Op::select) return ir.CreateSelect(a, b, c);
  if (loops::facts_of(op).typing == loops::Typing::compare)
    return emit_compare(ir, op, dtype, a, b);
  if (dtype == DType::b8) return emit_boolean(ir, op, a, b);
  if (op == Op::min) return emit_min(ir, dtype, a, b);
  if (op == Op::max) return emit_max(ir, dtype, a, b);
  return is_floating(dtype) ? emit_floating(ir, op, a, b) : emit_integer(ir, op, dtype, a, b);
}

Divided emit_integer_division(llvm::IRBuilder<>& ir, bool remainder, DType dtype, Value* a,
                              Value* b) {
  llvm::Type* type = a->getType();
  Value* zero = integer_of(type, 0);
  Value* by_zero = ir.CreateICmpEQ(b, zero);
  // Division by 0, and of the lowest number by -1, would trap.
  Value* divisor = ir.CreateSelect(by_zero, integer_of(type, 1), b);
  auto or_zero = [&](Value* result) { return ir.CreateSelect(by_zero, zero, result); };
  if (!is_signed(dtype))
    return {or_zero(remainder ? ir.CreateURem(a, divisor) : ir.CreateUDiv(a, divisor)), by_zero};
  Value* negates = ir.CreateICmpEQ(b, integer_of(type, -1));
  divisor = ir.CreateSelect(negates, integer_of(type, 1), divisor);
  Value* result = remainder ? ir.CreateSRem(a, divisor)
                            : ir.CreateSelect(negates, ir.CreateNeg(a), ir.CreateSDiv(a, divisor));
  return {or_zero(result), by_zero};
}

}  // namespace smelt::cpu
