// Loads and stores.
#include <limits>
#include <map>
#include <numeric>

#include "base/error.h"
#include "codegen/cpu/casts.h"
#include "codegen/cpu/emitter.h"
#include "codegen/cpu/short_rows.h"
#include "codegen/cpu/types.h"

namespace smelt::cpu {

using loops::Term;
using Walk = Access::Walk;

// Scratch of an outer point, where a vector holds several points: the lanes lie side by side.
bool Emitter::is_lane_scratch(int32_t slot) const {
  return plan_.outer_vector && kernel_.buffers[slot].kind == loops::Buffer::Kind::scratch;
}

Value* Emitter::buffer_pointer(int32_t slot) {
  if (const auto found = allocated_.find(slot); found != allocated_.end()) return found->second;
  Value* pointer = nullptr;
  at_depth(0, [&] {
    if (kernel_.buffers[slot].kind == loops::Buffer::Kind::scratch) {
      pointer = ir_.CreateConstInBoundsGEP1_64(ir_.getInt8Ty(), scratch_,
                                               static_cast<uint64_t>(plan_.scratch_offset[slot]));
      return;
    }
    Value* at =
        ir_.CreateConstInBoundsGEP1_64(ir_.getPtrTy(), buffers_, static_cast<uint64_t>(slot));
    pointer = ir_.CreateLoad(ir_.getPtrTy(), at);
  });
  return pointer;
}

// Whole vectors of short rows; what is left is scattered.
bool Emitter::walks_rows(const Inst& inst, Access& access) {
  if (mask_ || lanes_ == 1 || !plan_.by_rows || is_lane_scratch(inst.slot)) return false;
  const auto walk = row_walk(inst.index, plan_.vector_dim, lanes_);
  if (!walk || (inst.op != Op::load && inst.op != Op::store)) return false;
  // Of lanes that write one place the last has to stay.
  if (inst.op == Op::store && (!walk->along || walk->stride.is(0))) return false;
  access.walk = Walk::rows;
  access.stride = size_value(walk->stride);
  access.row = static_cast<int>(walk->row);
  access.along = walk->along;
  return true;
}

Access Emitter::access(const Inst& inst) {
  Access access;
  const bool lane_scratch = is_lane_scratch(inst.slot);
  const bool by_rows = walks_rows(inst, access);
  std::map<int, llvm::SmallVector<const Term*, 4>> by_depth;
  for (const Term& term : inst.index.terms()) {
    const uint64_t depends = depends_of(term.atom);
    if (is_varying(depends) && !by_rows) {
      const bool linear = term.atom.kind == loops::Atom::Kind::dim && !lane_scratch;
      if (!linear || access.walk == Walk::scattered)
        access.walk = Walk::scattered;
      else if (term.stride.is(1))
        access.walk = Walk::contiguous;
      else
        access.walk = Walk::strided, access.stride = size_value(term.stride);
    }
    by_depth[depth_of(depends)].push_back(&term);
  }
  llvm::Type* element = memory_type(context_, kernel_.buffers[inst.slot].dtype);
  const int scale = lane_scratch ? lanes_ * packs_ : 1;
  llvm::Type* unit =
      scale > 1 ? llvm::ArrayType::get(element, static_cast<uint64_t>(scale)) : element;
  access.pointer = buffer_pointer(inst.slot);
  for (const auto& [depth, terms] : by_depth) {
    at_depth(depth, [&] {
      Value* sum = number(0);
      for (const Term* term : terms) {
        if (access.walk == Walk::scattered && is_varying(depends_of(term->atom))) continue;
        sum = ir_.CreateAdd(sum, ir_.CreateMul(scalar_atom(term->atom), size_value(term->stride)));
      }
      access.pointer = ir_.CreateGEP(unit, access.pointer, sum);
    });
  }
  access.pointer = ir_.CreateGEP(unit, access.pointer, size_value(inst.index.constant()));
  if (access.walk == Walk::scattered) {
    llvm::Type* type = lane_scratch ? ir_.getInt64Ty() : lane_index_type(inst.index);
    for (int pack = 0; pack < packs_; ++pack) {
      Value* offsets = vector_index(inst.index, pack, type, true);
      if (lane_scratch) {
        offsets = ir_.CreateMul(offsets, integer_of(offsets->getType(), scale));
        offsets = ir_.CreateAdd(
            offsets, lane_numbers(ir_.getInt64Ty(), static_cast<int64_t>(pack) * lanes_));
      }
      access.offsets.push_back(offsets);
    }
  } else if (lane_scratch) {
    access.walk = Walk::contiguous;
  }
  return access;
}

// Where the first lane of a pack is.
Value* Emitter::pack_pointer(const Access& access, llvm::Type* element, int pack) {
  if (access.walk == Walk::uniform || access.walk == Walk::scattered || access.walk == Walk::rows)
    return access.pointer;
  Value* lanes = ir_.getInt64(static_cast<uint64_t>(pack) * lanes_);
  if (access.walk == Walk::strided) lanes = ir_.CreateMul(lanes, access.stride);
  return ir_.CreateGEP(element, access.pointer, lanes);
}

// Per lane, from pack_pointer. Lanes not in use point to the first one's place, which is safe.
Value* Emitter::lane_offsets(const Access& access, int pack) {
  if (access.walk == Walk::scattered) {
    Value* offsets = access.offsets[pack];
    if (!mask_) return offsets;
    return ir_.CreateSelect(mask_, offsets,
                            splat(ir_.CreateExtractElement(offsets, uint64_t{0}), lanes_));
  }
  // Half as wide where it fits: gathers take as many lanes as there are offsets in a register.
  auto* known = llvm::dyn_cast<llvm::ConstantInt>(access.stride);
  const bool narrow =
      known && std::abs(known->getSExtValue()) < std::numeric_limits<int32_t>::max() / 64;
  llvm::Type* type = narrow ? ir_.getInt32Ty() : ir_.getInt64Ty();
  Value* stride = ir_.CreateIntCast(access.stride, type, true);
  Value* offsets = ir_.CreateMul(lane_numbers(type), splat(stride, lanes_));
  return mask_ ? ir_.CreateSelect(mask_, offsets, integer_of(offsets->getType(), 0)) : offsets;
}

Value* Emitter::row_pointer(const Access& access, llvm::Type* element, int pack, int row) {
  const int rows = lanes_ / access.row;
  return ir_.CreateGEP(element, access.pointer,
                       ir_.CreateMul(access.stride, number(int64_t{pack} * rows + row)));
}

Value* Emitter::load_rows(const Access& access, llvm::Type* element, int pack) {
  const llvm::Align align(element->getScalarSizeInBits() / 8);
  llvm::SmallVector<Value*, 16> rows;
  for (int i = 0; i < lanes_ / access.row; ++i) {
    if (i > 0 && llvm::isa<llvm::ConstantInt>(access.stride) &&
        llvm::cast<llvm::ConstantInt>(access.stride)->isZero()) {
      rows.push_back(rows[0]);
      continue;
    }
    Value* pointer = row_pointer(access, element, pack, i);
    rows.push_back(access.along
                       ? static_cast<Value*>(
                             ir_.CreateAlignedLoad(with_lanes(element, access.row), pointer, align))
                       : splat(ir_.CreateAlignedLoad(element, pointer, align), access.row));
  }
  for (int lanes = access.row; rows.size() > 1; lanes *= 2) {
    llvm::SmallVector<int, 64> all(2 * lanes);
    std::iota(all.begin(), all.end(), 0);
    for (size_t i = 0; i < rows.size() / 2; ++i)
      rows[i] = ir_.CreateShuffleVector(rows[2 * i], rows[2 * i + 1], all);
    rows.resize(rows.size() / 2);
  }
  return rows[0];
}

void Emitter::store_rows(const Access& access, llvm::Type* element, int pack, Value* value) {
  const llvm::Align align(element->getScalarSizeInBits() / 8);
  for (int i = 0; i < lanes_ / access.row; ++i) {
    llvm::SmallVector<int, 64> lanes(access.row);
    std::iota(lanes.begin(), lanes.end(), i * access.row);
    ir_.CreateAlignedStore(ir_.CreateShuffleVector(value, lanes),
                           row_pointer(access, element, pack, i), align);
  }
}

Value* Emitter::load_part(const Inst& inst, const Access& access, int pack) {
  const DType dtype = inst.dtype;
  llvm::Type* element = memory_type(context_, dtype);
  const llvm::Align align(bytes_of(dtype));
  Value* pointer = pack_pointer(access, element, pack);
  Value* loaded = nullptr;
  if (lanes_ == 1 || access.walk == Walk::uniform) {
    if (access.walk == Walk::scattered)
      pointer = ir_.CreateGEP(element, pointer, access.offsets[pack]);
    loaded = ir_.CreateAlignedLoad(element, pointer, align);
  } else if (access.walk == Walk::rows) {
    loaded = load_rows(access, element, pack);
  } else if (access.walk == Walk::contiguous) {
    llvm::Type* type = with_lanes(element, lanes_);
    loaded = mask_ ? static_cast<Value*>(ir_.CreateMaskedLoad(type, pointer, align, mask_,
                                                              llvm::Constant::getNullValue(type)))
                   : ir_.CreateAlignedLoad(type, pointer, align);
  } else {
    Value* pointers = ir_.CreateGEP(element, pointer, lane_offsets(access, pack));
    loaded = ir_.CreateMaskedGather(with_lanes(element, lanes_), pointers, align);
  }
  return from_memory(ir_, loaded, dtype);
}

Parts Emitter::emit_load(Val value) {
  const Inst& inst = kernel_.insts[value];
  const Access access = this->access(inst);
  if (!is_varying(value)) return {load_part(inst, access, 0)};
  Parts parts;
  for (int pack = 0; pack < packs_; ++pack) {
    Value* part = load_part(inst, access, pack);
    if (plan_.ahead[value] && !mask_ && lanes_ > 1) prefetch(value, access, pack);
    parts.push_back(access.walk == Walk::uniform ? splat(part, lanes_) : part);
  }
  return parts;
}

void Emitter::store_part(const Inst& inst, const Access& access, int pack, Value* value) {
  llvm::Type* element = memory_type(context_, inst.dtype);
  const llvm::Align align(bytes_of(inst.dtype));
  Value* pointer = pack_pointer(access, element, pack);
  value = to_memory(ir_, value, inst.dtype);
  if (access.walk == Walk::uniform && lanes_ > 1) {
    // All lanes write one place: the last stays.
    Value* last = mask_ ? ir_.CreateSub(ir_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, active_,
                                                                  number(lanes_)),
                                        number(1))
                        : number(lanes_ - 1);
    ir_.CreateAlignedStore(ir_.CreateExtractElement(value, last), pointer, align);
  } else if (lanes_ == 1) {
    if (access.walk == Walk::scattered)
      pointer = ir_.CreateGEP(element, pointer, access.offsets[pack]);
    ir_.CreateAlignedStore(value, pointer, align);
  } else if (access.walk == Walk::rows) {
    store_rows(access, element, pack, value);
  } else if (access.walk == Walk::contiguous) {
    if (mask_)
      ir_.CreateMaskedStore(value, pointer, align, mask_);
    else if (can_stream(inst, access))
      store_streamed(inst, pointer, value);
    else
      ir_.CreateAlignedStore(value, pointer, align);
  } else {
    Value* pointers = ir_.CreateGEP(element, pointer, lane_offsets(access, pack));
    ir_.CreateMaskedScatter(value, pointers, align, mask_);
  }
}

void Emitter::emit_store(const Inst& inst) {
  const Access access = this->access(inst);
  const Val value = inst.args[0];
  if (access.walk == Walk::uniform && !is_varying(value)) {
    llvm::Type* element = memory_type(context_, inst.dtype);
    ir_.CreateAlignedStore(to_memory(ir_, scalar_of(value), inst.dtype),
                           pack_pointer(access, element, 0), llvm::Align(bytes_of(inst.dtype)));
    return;
  }
  for (int pack = 0; pack < packs_; ++pack) store_part(inst, access, pack, lanes_of(value, pack));
}

}  // namespace smelt::cpu
