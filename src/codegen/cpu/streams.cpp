// Stores past the caches (plan_large.h). The instruction for them takes whole vectors at addresses
// aligned to their size; every store asks for that, since rows may begin anywhere. An output that
// is the memory of an input is in the caches already, and stays there.
//
// Large inputs are asked for ahead of time. The processor does so by itself, but not past the end
// of a page, and not before a row is read that is long in coming because of the arithmetic before
// it.
#include "codegen/cpu/casts.h"
#include "codegen/cpu/emitter.h"
#include "codegen/cpu/types.h"

namespace smelt::cpu {

// The store whose boundaries a loop over whole vectors should begin at.
const Inst* Emitter::stream_lead(const loops::Stage& stage) const {
  if (plan_.by_rows) return nullptr;  // vectors begin at rows
  for (Val v = stage.begin; v < stage.end; ++v) {
    const Inst& inst = kernel_.insts[v];
    if (inst.op == Op::store && plan_.streamed[inst.slot] && inst.index.is_affine() &&
        !inst.index.uses_values())
      return &inst;
  }
  return nullptr;
}

// The first point of the range at which the store is aligned, or its end.
Value* Emitter::aligned_begin(const Range& range, const Inst& lead) {
  const auto [begin, end, multiple] = range;
  dim_value_[plan_.vector_dim] = begin;
  depth_of_bit_[plan_.vector_dim] = depth();
  Value* address = ir_.CreatePtrToInt(access(lead).pointer, ir_.getInt64Ty());
  const int64_t width = bytes_of(lead.dtype);
  Value* beyond = ir_.CreateAnd(ir_.CreateNeg(address), number(width * plan_.lanes - 1));
  Value* points = ir_.CreateUDiv(beyond, number(width));
  return chunk_end(begin, points, end);
}

bool Emitter::can_stream(const Inst& inst, const Access& access) const {
  return plan_.streamed[inst.slot] && access.walk == Access::Walk::contiguous &&
         lanes_ * bytes_of(inst.dtype) >= 16;
}

// Are there so many points that what is written for them does not fit into the caches? Where sizes
// are known that was answered before.
Value* Emitter::is_large() {
  if (all_known(kernel_.outer) && all_known(kernel_.inner)) return ir_.getTrue();
  Value* points = number(1);
  for (int dim = 0; dim < kernel_.dims(); ++dim) points = ir_.CreateMul(points, extent(dim));
  return ir_.CreateICmpSGT(points, number(plan_.streamed_points));
}

// Bits that an address must not have: those below a vector's size; all, where the buffer is an
// input's memory, or is in the caches.
Value* Emitter::stream_mask(int32_t slot, int64_t vector_bytes) {
  Value*& mask = stream_masks_[slot];
  if (mask) return mask;
  at_depth(0, [&] {
    Value* in_place = ir_.getFalse();
    for (size_t i = 0; i < kernel_.buffers.size(); ++i)
      if (kernel_.buffers[i].kind == loops::Buffer::Kind::input)
        in_place = ir_.CreateOr(in_place, ir_.CreateICmpEQ(buffer_pointer(static_cast<int32_t>(i)),
                                                           buffer_pointer(slot)));
    mask = ir_.CreateSelect(ir_.CreateOr(in_place, ir_.CreateNot(is_large())), number(-1),
                            number(vector_bytes - 1));
  });
  return mask;
}

// Once per line.
void Emitter::prefetch(Val load, const Access& access, int pack) {
  const Inst& inst = kernel_.insts[load];
  if (access.walk != Access::Walk::contiguous || pack * lanes_ * bytes_of(inst.dtype) % 64) return;
  Value* pointer = pack_pointer(access, memory_type(context_, inst.dtype), pack);
  Value* there =
      ir_.CreateConstGEP1_64(ir_.getInt8Ty(), pointer, static_cast<uint64_t>(plan_.ahead[load]));
  constexpr uint32_t kRead = 0, kIntoAllCaches = 3, kData = 1;
  ir_.CreateIntrinsic(
      llvm::Intrinsic::prefetch, {ir_.getPtrTy()},
      {there, ir_.getInt32(kRead), ir_.getInt32(kIntoAllCaches), ir_.getInt32(kData)});
}

void Emitter::store_streamed(const Inst& inst, Value* pointer, Value* value) {
  const int64_t bytes = int64_t{lanes_} * bytes_of(inst.dtype);
  Value* address = ir_.CreatePtrToInt(pointer, ir_.getInt64Ty());
  Value* low = ir_.CreateAnd(address, stream_mask(inst.slot, bytes));
  auto* past = llvm::BasicBlock::Create(context_, "past", function_);
  auto* plain = llvm::BasicBlock::Create(context_, "plain", function_);
  auto* after = llvm::BasicBlock::Create(context_, "after", function_);
  ir_.CreateCondBr(ir_.CreateICmpEQ(low, number(0)), past, plain);
  ir_.SetInsertPoint(past);
  llvm::StoreInst* store =
      ir_.CreateAlignedStore(value, pointer, llvm::Align(static_cast<uint64_t>(bytes)));
  store->setMetadata(llvm::LLVMContext::MD_nontemporal,
                     llvm::MDNode::get(context_, llvm::ConstantAsMetadata::get(ir_.getInt32(1))));
  ir_.CreateBr(after);
  ir_.SetInsertPoint(plain);
  ir_.CreateAlignedStore(value, pointer, llvm::Align(bytes_of(inst.dtype)));
  ir_.CreateBr(after);
  ir_.SetInsertPoint(after);
}

}  // namespace smelt::cpu
