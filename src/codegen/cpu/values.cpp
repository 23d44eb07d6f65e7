// Instructions as values: where each is written, and what kind of register it takes.
#include <bit>

#include <llvm/ADT/APFloat.h>
#include <llvm/IR/Constants.h>

#include "base/error.h"
#include "codegen/cpu/arithmetic.h"
#include "codegen/cpu/casts.h"
#include "codegen/cpu/emitter.h"
#include "codegen/cpu/types.h"
#include "loops/may_fail.h"

namespace smelt::cpu {

int Emitter::depth_of(uint64_t depends) const {
  int depth = 0;
  for (; depends; depends &= depends - 1)
    depth = std::max(depth, depth_of_bit_[std::countr_zero(depends)]);
  return depth;
}

void Emitter::at_depth(int depth, Body write) {
  if (depth == this->depth()) return write();
  llvm::IRBuilder<>::InsertPointGuard guard(ir_);
  ir_.SetInsertPoint(scopes_[depth].end);
  write();
}

bool Emitter::is_varying(uint64_t depends) const {
  return plan_.vector_dim >= 0 && (depends & bit_of(plan_.vector_dim));
}

const Parts& Emitter::parts_of(Val value) {
  const int depth = depth_of(plan_.depends[value]);
  auto& values = scopes_[depth].values;
  if (const auto found = values.find(value); found != values.end()) return found->second;
  SMELT_CHECK(kernel_.insts[value].op != Op::reduce, "a reduction is used before its stage ends");
  Parts parts;
  at_depth(depth, [&] { parts = emit(value); });
  return scopes_[depth].values.emplace(value, std::move(parts)).first->second;
}

Value* Emitter::splat(Value* scalar, int lanes) {
  return lanes == 1 ? scalar : ir_.CreateVectorSplat(static_cast<unsigned>(lanes), scalar);
}

Value* Emitter::lanes_of(Val value, int pack) {
  const Parts& parts = parts_of(value);
  if (is_varying(value)) return parts[parts.size() == 1 ? 0 : pack];
  if (lanes_ == 1) return parts[0];
  const int depth = depth_of(plan_.depends[value]);
  Value*& known = scopes_[depth].splats[value];
  if (!known) at_depth(depth, [&] { known = splat(parts[0], lanes_); });
  return known;
}

// first, first + 1, ...
Value* Emitter::lane_numbers(llvm::Type* element, int64_t first) const {
  if (lanes_ == 1) return integer_of(element, first);
  llvm::SmallVector<llvm::Constant*, 64> numbers;
  for (int lane = 0; lane < lanes_; ++lane)
    numbers.push_back(llvm::cast<llvm::Constant>(integer_of(element, first + lane)));
  return llvm::ConstantVector::get(numbers);
}

Parts Emitter::emit(Val value) {
  const Inst& inst = kernel_.insts[value];
  switch (inst.op) {
    case Op::constant: return {emit_constant(inst)};
    case Op::param: return {emit_param(inst)};
    case Op::index: return emit_index(value);
    case Op::load: return emit_load(value);
    case Op::check: return emit_check(value);
    default: break;
  }
  if (loops::may_fail(inst.op, inst.dtype)) return emit_division(value);
  const bool varying = is_varying(value);
  Parts parts;
  for (int pack = 0; pack < (varying ? packs_ : 1); ++pack) {
    std::array<Value*, 3> args = {};
    for (int i = 0; i < loops::facts_of(inst.op).arguments; ++i)
      args[i] = varying ? lanes_of(inst.args[i], pack) : scalar_of(inst.args[i]);
    const DType from = kernel_.insts[inst.args[0]].dtype;
    parts.push_back(inst.op == Op::cast
                        ? emit_cast(ir_, args[0], from, inst.dtype)
                        : emit_arithmetic(ir_, inst.op, from, args[0], args[1], args[2]));
  }
  return parts;
}

Value* Emitter::emit_constant(const Inst& inst) {
  llvm::Type* type = register_type(context_, inst.dtype);
  if (inst.dtype == DType::f16 || inst.dtype == DType::bf16) {
    // Rounded by way of f32, as a cast is.
    llvm::APFloat number(static_cast<float>(inst.number));
    bool loses = false;
    const auto& format =
        inst.dtype == DType::f16 ? llvm::APFloat::IEEEhalf() : llvm::APFloat::BFloat();
    number.convert(format, llvm::APFloat::rmNearestTiesToEven, &loses);
    if (inst.dtype == DType::f16) return llvm::ConstantFP::get(type, number);
    return llvm::ConstantInt::get(context_, number.bitcastToAPInt());
  }
  if (inst.dtype == DType::f32)  // its own rounding, not LLVM's
    return llvm::ConstantFP::get(context_, llvm::APFloat(static_cast<float>(inst.number)));
  if (is_floating(inst.dtype)) return llvm::ConstantFP::get(type, inst.number);
  return integer_of(type, inst.dtype == DType::b8 ? inst.integer != 0 : inst.integer);
}

Value* Emitter::emit_param(const Inst& inst) {
  const DType kept = is_floating(inst.dtype) ? DType::f64 : DType::i64;
  Value* at =
      ir_.CreateConstInBoundsGEP1_64(ir_.getInt64Ty(), params_, static_cast<uint64_t>(inst.slot));
  return emit_cast(ir_, ir_.CreateLoad(register_type(context_, kept), at), kept, inst.dtype);
}

// Notes a failure where the condition holds for a lane in use.
void Emitter::fail_where(Value* condition, bool varying) {
  if (varying && mask_) condition = ir_.CreateAnd(condition, mask_);
  if (auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(condition->getType()))
    condition = ir_.CreateBitCast(condition, ir_.getIntNTy(vector->getNumElements()));
  Value* so_far = ir_.CreateLoad(ir_.getInt64Ty(), failed_);
  ir_.CreateStore(ir_.CreateOr(so_far, ir_.CreateZExt(condition, ir_.getInt64Ty())), failed_);
}

Parts Emitter::emit_check(Val value) {
  const Inst& inst = kernel_.insts[value];
  const bool varying = is_varying(value);
  Value* bound = size_value(inst.bound);
  Parts parts;
  for (int pack = 0; pack < (varying ? packs_ : 1); ++pack) {
    Value* number = varying ? lanes_of(inst.args[0], pack) : scalar_of(inst.args[0]);
    Value* limit = varying ? splat(bound, lanes_) : bound;
    // Read as unsigned, a negative number is out of range too.
    Value* good = ir_.CreateICmpULT(number, limit);
    fail_where(ir_.CreateNot(good), varying);
    parts.push_back(ir_.CreateSelect(good, number, integer_of(number->getType(), 0)));
  }
  return parts;
}

Parts Emitter::emit_division(Val value) {
  const Inst& inst = kernel_.insts[value];
  const bool varying = is_varying(value);
  Parts parts;
  for (int pack = 0; pack < (varying ? packs_ : 1); ++pack) {
    Value* a = varying ? lanes_of(inst.args[0], pack) : scalar_of(inst.args[0]);
    Value* b = varying ? lanes_of(inst.args[1], pack) : scalar_of(inst.args[1]);
    const Divided divided = emit_integer_division(ir_, inst.op == Op::mod, inst.dtype, a, b);
    fail_where(divided.by_zero, varying);
    parts.push_back(divided.result);
  }
  return parts;
}

}  // namespace smelt::cpu
