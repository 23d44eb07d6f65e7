#include "codegen/cpu/vector_math/value.h"

#include <llvm/IR/Constants.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>

namespace smelt::vector_math {

namespace {

llvm::Type* with_scalar(llvm::Type* like, llvm::Type* scalar) {
  if (auto* vector = llvm::dyn_cast<llvm::VectorType>(like)) {
    return llvm::VectorType::get(scalar, vector->getElementCount());
  }
  return scalar;
}

llvm::Constant* integer(const Bits& like, int64_t value) {
  return llvm::ConstantInt::get(like.value->getType(), static_cast<uint64_t>(value), true);
}

const Num& the_num(const Term& a, const Term& b, const Term& c) {
  return a.num.value ? a.num : b.num.value ? b.num : c.num;
}

Num unary(llvm::Intrinsic::ID id, const Num& a) {
  return {a.ir, a.ir->CreateUnaryIntrinsic(id, a.value)};
}

}  // namespace

Num Num::number(double constant) const {
  return {ir, llvm::ConstantFP::get(value->getType(), constant)};
}

Bits Num::bits() const {
  llvm::Type* scalar = wide() ? ir->getInt64Ty() : ir->getInt32Ty();
  return {ir, ir->CreateBitCast(value, with_scalar(value->getType(), scalar))};
}

Num Bits::as_number() const {
  llvm::Type* scalar = wide() ? ir->getDoubleTy() : ir->getFloatTy();
  return {ir, ir->CreateBitCast(value, with_scalar(value->getType(), scalar))};
}

Num operator+(const Num& a, Term b) { return {a.ir, a.ir->CreateFAdd(a.value, b.as(a).value)}; }
Num operator-(const Num& a, Term b) { return {a.ir, a.ir->CreateFSub(a.value, b.as(a).value)}; }
Num operator-(double a, const Num& b) { return b.number(a) - b; }
Num operator*(const Num& a, Term b) { return {a.ir, a.ir->CreateFMul(a.value, b.as(a).value)}; }
Num operator/(const Num& a, Term b) { return {a.ir, a.ir->CreateFDiv(a.value, b.as(a).value)}; }
Num operator/(double a, const Num& b) { return b.number(a) / b; }
Num operator-(const Num& a) { return {a.ir, a.ir->CreateFNeg(a.value)}; }

Num fma(Term a, Term b, Term c) {
  const Num& model = the_num(a, b, c);
  return {model.ir,
          model.ir->CreateIntrinsic(llvm::Intrinsic::fma, {model.value->getType()},
                                    {a.as(model).value, b.as(model).value, c.as(model).value})};
}

Mask operator<(const Num& a, Term b) { return {a.ir, a.ir->CreateFCmpOLT(a.value, b.as(a).value)}; }
Mask operator>(const Num& a, Term b) { return {a.ir, a.ir->CreateFCmpOGT(a.value, b.as(a).value)}; }
Mask operator==(const Num& a, Term b) {
  return {a.ir, a.ir->CreateFCmpOEQ(a.value, b.as(a).value)};
}
Mask has_sign(const Num& a) {
  const Bits bits = a.bits();
  return {a.ir, a.ir->CreateICmpSLT(bits.value, integer(bits, 0))};
}
Mask operator&(const Mask& a, const Mask& b) { return {a.ir, a.ir->CreateAnd(a.value, b.value)}; }
Mask operator|(const Mask& a, const Mask& b) { return {a.ir, a.ir->CreateOr(a.value, b.value)}; }
Mask operator^(const Mask& a, const Mask& b) { return {a.ir, a.ir->CreateXor(a.value, b.value)}; }
Mask operator!(const Mask& a) { return {a.ir, a.ir->CreateNot(a.value)}; }

Num select(const Mask& condition, Term yes, Term no) {
  const Num& model = the_num(yes, no, no);
  return {model.ir,
          model.ir->CreateSelect(condition.value, yes.as(model).value, no.as(model).value)};
}

// limit < a ? limit : a is minps(limit, a), which gives a if it is NaN.
Num at_most(const Num& a, double limit) { return select(a > limit, limit, a); }
Num at_least(const Num& a, double limit) { return select(a < limit, limit, a); }

Num abs(const Num& a) { return unary(llvm::Intrinsic::fabs, a); }
Num sqrt(const Num& a) { return unary(llvm::Intrinsic::sqrt, a); }
Num trunc(const Num& a) { return unary(llvm::Intrinsic::trunc, a); }
Num copysign(const Num& magnitude, const Num& sign) {
  return {sign.ir,
          sign.ir->CreateBinaryIntrinsic(llvm::Intrinsic::copysign, magnitude.value, sign.value)};
}

Bits operator+(const Bits& a, int64_t b) { return {a.ir, a.ir->CreateAdd(a.value, integer(a, b))}; }
Bits operator-(const Bits& a, const Bits& b) { return {a.ir, a.ir->CreateSub(a.value, b.value)}; }
Bits operator-(int64_t a, const Bits& b) { return {b.ir, b.ir->CreateSub(integer(b, a), b.value)}; }
Bits operator&(const Bits& a, int64_t b) { return {a.ir, a.ir->CreateAnd(a.value, integer(a, b))}; }
Bits operator^(const Bits& a, const Bits& b) { return {a.ir, a.ir->CreateXor(a.value, b.value)}; }
Bits operator<<(const Bits& a, int by) { return {a.ir, a.ir->CreateShl(a.value, integer(a, by))}; }
Bits operator>>(const Bits& a, int by) { return {a.ir, a.ir->CreateLShr(a.value, integer(a, by))}; }
Mask is_odd(const Bits& a) { return {a.ir, a.ir->CreateICmpNE((a & 1).value, integer(a, 0))}; }

Num to_f64(const Num& a) {
  return {a.ir, a.ir->CreateFPExt(a.value, with_scalar(a.value->getType(), a.ir->getDoubleTy()))};
}
Num to_f32(const Num& a) {
  return {a.ir, a.ir->CreateFPTrunc(a.value, with_scalar(a.value->getType(), a.ir->getFloatTy()))};
}

// Of 512 bits, in functions that say that those are registers.
bool has_scale_by_exponent(const Num& x) {
  const llvm::Type* type = x.value->getType();
  if (!type->isVectorTy() || type->getPrimitiveSizeInBits().getFixedValue() != 512) return false;
  const llvm::Function* function = x.ir->GetInsertBlock()->getParent();
  return function->getFnAttribute("min-legal-vector-width").getValueAsString() == "512";
}

Num scale_by_exponent(const Num& x, const Num& k) {
  const auto id = x.wide() ? llvm::Intrinsic::x86_avx512_mask_scalef_pd_512
                           : llvm::Intrinsic::x86_avx512_mask_scalef_ps_512;
  llvm::Value* all =
      llvm::Constant::getAllOnesValue(x.wide() ? x.ir->getInt8Ty() : x.ir->getInt16Ty());
  constexpr uint32_t kAsSet = 4;  // the rounding mode
  return {x.ir,
          x.ir->CreateIntrinsic(id, {}, {x.value, k.value, x.value, all, x.ir->getInt32(kAsSet)})};
}

// One chain: the processor works on several points at a time, and the rounding errors are the
// least.
Num polynomial(const Num& x, std::span<const double> coefficients) {
  Num sum = x.number(coefficients.back());
  for (size_t i = coefficients.size() - 1; i-- > 0;) sum = fma(sum, x, coefficients[i]);
  return sum;
}

int mantissa_bits(const Num& x) { return by_type(x, 23, 52); }
int exponent_bias(const Num& x) { return by_type(x, 127, 1023); }
double round_by(const Num& x) { return by_type(x, 0x1.8p23, 0x1.8p52); }

double LongConstant::high(const Num& x) const {
  return x.wide() ? value : static_cast<double>(static_cast<float>(value));
}
double LongConstant::low(const Num& x) const { return x.wide() ? rest : value - high(x); }

}  // namespace smelt::vector_math
