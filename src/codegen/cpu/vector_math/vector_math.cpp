#include "codegen/cpu/vector_math/vector_math.h"

#include <llvm/IR/Intrinsics.h>

#include <string>

#include "base/error.h"
#include "codegen/cpu/vector_math/functions.h"

namespace smelt {

llvm::Value* emit_math(llvm::IRBuilder<>& ir, loops::Op op, llvm::Value* x, llvm::Value* y) {
  namespace math = vector_math;
  using loops::Op;
  // The functions say themselves where something is contracted.
  llvm::IRBuilder<>::FastMathFlagGuard guard(ir);
  ir.clearFastMathFlags();
  const math::Num a{&ir, x}, b{&ir, y};
  switch (op) {
    // One instruction each on x86.
    case Op::floor: return ir.CreateUnaryIntrinsic(llvm::Intrinsic::floor, x);
    case Op::ceil: return ir.CreateUnaryIntrinsic(llvm::Intrinsic::ceil, x);
    case Op::round: return ir.CreateUnaryIntrinsic(llvm::Intrinsic::roundeven, x);
    case Op::trunc: return math::trunc(a).value;
    case Op::sqrt: return math::sqrt(a).value;
    case Op::copysign: return math::copysign(a, b).value;
    case Op::rsqrt: return (1.0 / math::sqrt(a)).value;
    case Op::exp: return math::exp(a).value;
    case Op::exp2: return math::exp2(a).value;
    case Op::expm1: return math::expm1(a).value;
    case Op::sigmoid: return math::sigmoid(a).value;
    case Op::log: return math::log(a).value;
    case Op::log2: return math::log2(a).value;
    case Op::log10: return math::log10(a).value;
    case Op::log1p: return math::log1p(a).value;
    case Op::sin: return math::sin(a).value;
    case Op::cos: return math::cos(a).value;
    case Op::tan: return math::tan(a).value;
    case Op::asin: return math::asin(a).value;
    case Op::acos: return math::acos(a).value;
    case Op::atan: return math::atan(a).value;
    case Op::atan2: return math::atan2(a, b).value;
    case Op::sinh: return math::sinh(a).value;
    case Op::cosh: return math::cosh(a).value;
    case Op::tanh: return math::tanh(a).value;
    case Op::asinh: return math::asinh(a).value;
    case Op::acosh: return math::acosh(a).value;
    case Op::atanh: return math::atanh(a).value;
    case Op::erf: return math::erf(a).value;
    case Op::erfc: return math::erfc(a).value;
    case Op::pow: return math::pow(a, b).value;
    case Op::mod: return math::fmod(a, b).value;
    default: break;
  }
  SMELT_CHECK(false, "no elementary function: " + std::string(loops::facts_of(op).name));
  return nullptr;
}

}  // namespace smelt
