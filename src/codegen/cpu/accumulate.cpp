// Adding to memory. Where several lanes may meet at one place they take turns, in order.
#include "codegen/cpu/arithmetic.h"
#include "codegen/cpu/casts.h"
#include "codegen/cpu/emitter.h"
#include "codegen/cpu/types.h"

namespace smelt::cpu {

namespace {

// f16 and bf16 are added as f32.
Value* add_values(llvm::IRBuilder<>& ir, DType dtype, Value* a, Value* b) {
  const DType wide = accumulate_of(dtype);
  Value* sum = emit_arithmetic(ir, Op::add, wide, emit_cast(ir, a, dtype, wide),
                               emit_cast(ir, b, dtype, wide), nullptr);
  return emit_cast(ir, sum, wide, dtype);
}

}  // namespace

void Emitter::add_to(Value* pointer, DType dtype, Value* value) {
  llvm::Type* element = memory_type(context_, dtype);
  const llvm::Align align(bytes_of(dtype));
  Value* old = from_memory(ir_, ir_.CreateAlignedLoad(element, pointer, align), dtype);
  ir_.CreateAlignedStore(to_memory(ir_, add_values(ir_, dtype, old, value), dtype), pointer, align);
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
  add_to(pointer, inst.dtype, from_memory(ir_, one, inst.dtype));
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
      add_to(pointer, inst.dtype, value);
    } else if (apart) {
      Value* old = load_part(inst, access, pack);
      store_part(inst, access, pack, add_values(ir_, inst.dtype, old, value));
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

}  // namespace smelt::cpu
