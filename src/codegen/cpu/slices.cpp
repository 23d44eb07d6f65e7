// Reductions done in slices (plan_large.h). Behind the kernel's buffers there is one more: for each
// reduction what each slice has found for each outer point, the vector dimension side by side.
#include "codegen/cpu/casts.h"
#include "codegen/cpu/emitter.h"
#include "codegen/cpu/types.h"

namespace smelt::cpu {

// Where the outer point (the first lane of a pack) of a slice has its place.
Value* Emitter::partial_pointer(Val value, bool position, Value* slice, int pack) {
  const Inst& inst = kernel_.insts[value];
  const int64_t width = bytes_of(reduced_dtype(inst));
  const int64_t results = plan_.slices * product(kernel_.outer).known();
  Value* place = slice;
  auto add_digit = [&](int dim) {
    place = ir_.CreateAdd(ir_.CreateMul(place, extent(dim)), dim_value_[dim]);
  };
  for (int dim = 0; dim < static_cast<int>(kernel_.outer.size()); ++dim)
    if (dim != plan_.vector_dim) add_digit(dim);
  if (plan_.outer_vector) add_digit(plan_.vector_dim);
  place = ir_.CreateAdd(place, number(int64_t{pack} * lanes_));
  Value* at = ir_.CreateConstInBoundsGEP1_64(ir_.getPtrTy(), buffers_, kernel_.buffers.size());
  Value* base = ir_.CreateLoad(ir_.getPtrTy(), at);
  const int64_t offset =
      plan_.partial_offset[value] + (position ? (results * width + 63) / 64 * 64 : 0);
  base = ir_.CreateGEP(ir_.getInt8Ty(), base, number(offset));
  llvm::Type* element = position ? position_type() : memory_type(context_, reduced_dtype(inst));
  return ir_.CreateGEP(element, base, place);
}

void Emitter::store_slice(Val value) {
  const DType dtype = reduced_dtype(kernel_.insts[value]);
  auto store = [&](Value* what, Value* pointer) {
    const llvm::Align align(what->getType()->getScalarSizeInBits() / 8);
    if (mask_)
      ir_.CreateMaskedStore(what, pointer, align, mask_);
    else
      ir_.CreateAlignedStore(what, pointer, align);
  };
  int pack = 0;
  for (const Found& found : reduced(value)) {
    store(to_memory(ir_, found.value, dtype), partial_pointer(value, false, slice_, pack));
    if (found.position) store(found.position, partial_pointer(value, true, slice_, pack));
    ++pack;
  }
}

// What a slice has found, for a pack of outer points.
Found Emitter::load_slice(Val value, Value* slice, int pack) {
  const Inst& inst = kernel_.insts[value];
  const DType dtype = reduced_dtype(inst);
  auto load = [&](llvm::Type* element, Value* pointer) -> Value* {
    llvm::Type* type = with_lanes(element, lanes_);
    const llvm::Align align(element->getScalarSizeInBits() / 8);
    if (mask_)
      return ir_.CreateMaskedLoad(type, pointer, align, mask_, llvm::Constant::getNullValue(type));
    return ir_.CreateAlignedLoad(type, pointer, align);
  };
  Value* part = load(memory_type(context_, dtype), partial_pointer(value, false, slice, pack));
  Found found{from_memory(ir_, part, dtype)};
  if (loops::gives_position(inst.reduction))
    found.position = load(position_type(), partial_pointer(value, true, slice, pack));
  return found;
}

// The results of a stage, from those of its slices: of sums row by row, so that rounding errors
// stay small.
void Emitter::combine_slices(const loops::Stage& stage) {
  for (Val v = stage.begin; v < stage.end; ++v) {
    const Inst& inst = kernel_.insts[v];
    if (inst.op != Op::reduce) continue;
    const int64_t row = is_floating_sum(inst) ? 16 : plan_.slices;
    llvm::SmallVector<Accumulator::Slot, 4> slots, totals;
    for (int pack = 0; pack < packs_; ++pack) {
      slots.push_back(new_slot(inst, lanes_));
      totals.push_back(new_slot(inst, lanes_));
    }
    counted_loop(number(0), number(plan_.slices), row, [&](Value* begin) {
      for (const Accumulator::Slot& slot : slots) clear_slot(inst, slot, lanes_);
      Value* end = chunk_end(begin, number(row), number(plan_.slices));
      counted_loop(begin, end, 1, [&](Value* slice) {
        for (int pack = 0; pack < packs_; ++pack)
          combine_into(inst, load_slice(v, slice, pack), slots[pack]);
      });
      for (int pack = 0; pack < packs_; ++pack)
        combine_into(inst, read_slot(slots[pack]), totals[pack]);
    });
    Parts parts;
    for (const Accumulator::Slot& slot : totals) parts.push_back(reduced_result(read_slot(slot)));
    scopes_[depth_of_bit_[kPoint]].values[v] = std::move(parts);
  }
}

}  // namespace smelt::cpu
