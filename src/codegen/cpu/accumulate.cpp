// Combining with memory, and running values. Where several lanes may meet at one place they take
// turns, in order.
#include "codegen/cpu/arithmetic.h"
#include "codegen/cpu/casts.h"
#include "codegen/cpu/emitter.h"
#include "codegen/cpu/types.h"

namespace smelt::cpu {

namespace {

// f16 and bf16 are combined as f32.
Value* combined(llvm::IRBuilder<>& ir, const Inst& inst, Value* old, Value* value) {
  const DType dtype = inst.dtype, wide = accumulate_of(dtype);
  Value* result =
      emit_arithmetic(ir, loops::op_of(inst.reduction), wide, emit_cast(ir, old, dtype, wide),
                      emit_cast(ir, value, dtype, wide), nullptr);
  return emit_cast(ir, result, wide, dtype);
}

}  // namespace

void Emitter::combine_at(Value* pointer, const Inst& inst, Value* value) {
  const DType dtype = inst.dtype;
  llvm::Type* element = memory_type(context_, dtype);
  const llvm::Align align(bytes_of(dtype));
  Value* old = from_memory(ir_, ir_.CreateAlignedLoad(element, pointer, align), dtype);
  ir_.CreateAlignedStore(to_memory(ir_, combined(ir_, inst, old, value), dtype), pointer, align);
}

// A loop over the lanes, which lie in memory for that.
void Emitter::accumulate_lanes(const Inst& inst, const Access& access, int pack, Value* value) {
  llvm::Type* element = memory_type(context_, inst.dtype);
  llvm::Type* i64 = ir_.getInt64Ty();
  const bool scattered = access.walk == Access::Walk::scattered;
  llvm::AllocaInst* values = slot(with_lanes(element, lanes_), "values");
  ir_.CreateStore(to_memory(ir_, value, inst.dtype), values);
  llvm::AllocaInst* offsets = nullptr;
  if (scattered) {
    offsets = slot(with_lanes(i64, lanes_), "offsets");
    ir_.CreateStore(ir_.CreateSExt(access.offsets[pack], with_lanes(i64, lanes_)), offsets);
  }
  Value* count = number(lanes_);
  if (mask_) count = ir_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, active_, count);

  auto* loop = llvm::BasicBlock::Create(context_, "lane", function_);
  auto* after = llvm::BasicBlock::Create(context_, "after", function_);
  llvm::BasicBlock* before = ir_.GetInsertBlock();
  ir_.CreateBr(loop);
  ir_.SetInsertPoint(loop);
  llvm::PHINode* lane = ir_.CreatePHI(i64, 2);
  lane->addIncoming(number(0), before);
  Value* pointer = access.pointer;
  if (scattered) {
    Value* offset = ir_.CreateLoad(i64, ir_.CreateGEP(i64, offsets, lane));
    pointer = ir_.CreateGEP(element, pointer, offset);
  }
  Value* one = ir_.CreateLoad(element, ir_.CreateGEP(element, values, lane));
  combine_at(pointer, inst, from_memory(ir_, one, inst.dtype));
  Value* next = ir_.CreateAdd(lane, number(1));
  lane->addIncoming(next, ir_.GetInsertBlock());
  ir_.CreateCondBr(ir_.CreateICmpSLT(next, count), loop, after);
  ir_.SetInsertPoint(after);
}

void Emitter::emit_accumulate(const Inst& inst) {
  const Access access = this->access(inst);
  const Val argument = inst.args[0];
  for (int pack = 0; pack < packs_; ++pack) {
    Value* value = lanes_of(argument, pack);
    const bool apart = access.walk == Access::Walk::contiguous;
    if (lanes_ == 1) {
      llvm::Type* element = memory_type(context_, inst.dtype);
      Value* pointer = pack_pointer(access, element, pack);
      if (access.walk == Access::Walk::scattered)
        pointer = ir_.CreateGEP(element, pointer, access.offsets[pack]);
      combine_at(pointer, inst, value);
    } else if (apart) {
      Value* old = load_part(inst, access, pack);
      store_part(inst, access, pack, combined(ir_, inst, old, value));
    } else if (access.walk == Access::Walk::strided) {
      Access scattered = access;
      scattered.walk = Access::Walk::scattered;
      scattered.offsets.clear();
      llvm::Type* i64 = ir_.getInt64Ty();
      for (int p = 0; p < packs_; ++p)
        scattered.offsets.push_back(ir_.CreateMul(
            lane_numbers(i64, static_cast<int64_t>(p) * lanes_), splat(access.stride, lanes_)));
      accumulate_lanes(inst, scattered, pack, value);
    } else {
      accumulate_lanes(inst, access, pack, value);
    }
  }
}

// The accumulator after this point is the point's value.
void Emitter::emit_scan(Val value) {
  accumulate(value);
  const Accumulator& accumulator = accumulators_[value];
  const bool by_scalars = lanes_ == 1 && accumulator.scalar.value;
  Parts parts;
  for (int pack = 0; pack < packs_; ++pack) {
    llvm::AllocaInst* slot = (by_scalars ? accumulator.scalar : accumulator.packs[pack]).value;
    parts.push_back(ir_.CreateLoad(slot->getAllocatedType(), slot));
  }
  scopes_[depth()].values[value] = std::move(parts);
}

}  // namespace smelt::cpu
