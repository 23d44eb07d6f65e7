// Reductions. Over an inner vector dimension each lane of each pack combines its own points, and
// the lanes are combined after the last loop; over plain inner loops, beside an outer vector
// dimension, each lane is a result of its own. Accumulators are stack slots, which become registers
// (simplify_ir.h).
#include <limits>

#include "base/error.h"
#include "codegen/cpu/arithmetic.h"
#include "codegen/cpu/emitter.h"
#include "codegen/cpu/types.h"

namespace smelt::cpu {

using loops::Reduction;

namespace {

bool is_positional(const Inst& inst) {
  return inst.reduction == Reduction::argmin || inst.reduction == Reduction::argmax;
}

llvm::Constant* extreme(llvm::Type* type, DType dtype, bool highest) {
  if (is_floating(dtype)) return llvm::ConstantFP::getInfinity(type, !highest);
  const unsigned bits = type->getScalarSizeInBits();
  if (dtype == DType::b8) return llvm::cast<llvm::Constant>(integer_of(type, highest));
  if (!is_signed(dtype))
    return llvm::ConstantInt::get(
        type, highest ? llvm::APInt::getMaxValue(bits) : llvm::APInt::getZero(bits));
  return llvm::ConstantInt::get(
      type, highest ? llvm::APInt::getSignedMaxValue(bits) : llvm::APInt::getSignedMinValue(bits));
}

}  // namespace

Value* Emitter::identity(const Inst& inst, int lanes) {
  const DType dtype = reduced_dtype(inst);
  llvm::Type* type = with_lanes(register_type(context_, dtype), lanes);
  switch (inst.reduction) {
    case Reduction::sum: return llvm::Constant::getNullValue(type);
    case Reduction::product:
      return is_floating(dtype) ? llvm::ConstantFP::get(type, 1.0) : integer_of(type, 1);
    case Reduction::min:
    case Reduction::argmin: return extreme(type, dtype, true);
    case Reduction::max:
    case Reduction::argmax: return extreme(type, dtype, false);
    case Reduction::any: return integer_of(type, 0);
    case Reduction::all: return integer_of(type, 1);
  }
  SMELT_CHECK(false, "no such reduction");
}

// 32 bits where all positions fit.
llvm::Type* Emitter::position_type() {
  const Size count = product(kernel_.inner);
  const bool narrow = count.is_known() && count.known() < std::numeric_limits<int32_t>::max();
  return narrow ? ir_.getInt32Ty() : ir_.getInt64Ty();
}

Accumulator::Slot Emitter::new_slot(const Inst& inst, int lanes) {
  Accumulator::Slot made;
  made.value = slot(with_lanes(register_type(context_, reduced_dtype(inst)), lanes), "sum");
  if (is_positional(inst)) made.position = slot(with_lanes(position_type(), lanes), "position");
  clear_slot(inst, made, lanes);
  return made;
}

void Emitter::clear_slot(const Inst& inst, const Accumulator::Slot& slot, int lanes) {
  ir_.CreateStore(identity(inst, lanes), slot.value);
  // Nowhere: of equals, the lower position counts.
  if (slot.position)
    ir_.CreateStore(extreme(with_lanes(position_type(), lanes), DType::i64, true), slot.position);
}

void Emitter::combine_into(const Inst& inst, const Found& item, const Accumulator::Slot& slot) {
  const Found next = combine(inst, item, read_slot(slot));
  ir_.CreateStore(next.value, slot.value);
  if (slot.position) ir_.CreateStore(next.position, slot.position);
}

// `by_scalars`: the stage is walked so throughout.
void Emitter::open_accumulator(Val value, bool by_scalars) {
  const Inst& inst = kernel_.insts[value];
  Accumulator accumulator;
  const bool across = plan_.vector_dim >= 0 && !plan_.outer_vector;
  const int lanes = across ? plan_.lanes : lanes_;
  const int packs = across ? plan_.packs : packs_;
  for (int pack = 0; pack < packs; ++pack) accumulator.packs.push_back(new_slot(inst, lanes));
  if (across && lanes > 1 && (by_scalars || !plan_.masked_tail))
    accumulator.scalar = new_slot(inst, 1);
  if (is_floating_sum(inst)) {
    accumulator.totals.resize(levels_);
    for (auto& total : accumulator.totals)
      for (int pack = 0; pack < packs; ++pack) total.push_back(new_slot(inst, lanes));
  }
  accumulators_[value] = std::move(accumulator);
}

Found Emitter::combine(const Inst& inst, Found item, Found so_far) {
  const DType dtype = reduced_dtype(inst);
  Value *a = item.value, *b = so_far.value;
  switch (inst.reduction) {
    case Reduction::sum: return {emit_arithmetic(ir_, Op::add, dtype, b, a, nullptr)};
    case Reduction::product: return {emit_arithmetic(ir_, Op::mul, dtype, b, a, nullptr)};
    case Reduction::min: return {emit_arithmetic(ir_, Op::min, dtype, a, b, nullptr)};
    case Reduction::max: return {emit_arithmetic(ir_, Op::max, dtype, a, b, nullptr)};
    case Reduction::any: return {ir_.CreateOr(a, b)};
    case Reduction::all: return {ir_.CreateAnd(a, b)};
    default: break;
  }
  // The better value; NaN is better than all; of equals, the lower position.
  const bool less = inst.reduction == Reduction::argmin;
  Value* better = emit_arithmetic(ir_, Op::lt, dtype, less ? a : b, less ? b : a, nullptr);
  Value* same = emit_arithmetic(ir_, Op::eq, dtype, a, b, nullptr);
  if (is_floating(dtype)) {
    Value *nan_a = ir_.CreateFCmpUNO(a, a), *nan_b = ir_.CreateFCmpUNO(b, b);
    better = ir_.CreateOr(better, ir_.CreateAnd(nan_a, ir_.CreateNot(nan_b)));
    same = ir_.CreateOr(same, ir_.CreateAnd(nan_a, nan_b));
  }
  Value* lower = ir_.CreateICmpSLT(item.position, so_far.position);
  Value* take = ir_.CreateOr(better, ir_.CreateAnd(same, lower));
  return {ir_.CreateSelect(take, a, b), ir_.CreateSelect(take, item.position, so_far.position)};
}

// Row-major among the inner dimensions, of each lane.
Value* Emitter::flat_position(int pack) {
  Value* position = number(0);
  Value* lane_stride = number(0);
  for (int dim = static_cast<int>(kernel_.outer.size()); dim < kernel_.dims(); ++dim) {
    position = ir_.CreateAdd(ir_.CreateMul(position, extent(dim)), dim_value_[dim]);
    lane_stride = dim == plan_.vector_dim ? number(1) : ir_.CreateMul(lane_stride, extent(dim));
  }
  llvm::Type* type = position_type();
  position = splat(ir_.CreateTrunc(position, type), lanes_);
  if (plan_.outer_vector || lanes_ == 1) return position;
  Value* lanes = lane_numbers(type, static_cast<int64_t>(pack) * lanes_);
  return ir_.CreateAdd(position,
                       ir_.CreateMul(lanes, splat(ir_.CreateTrunc(lane_stride, type), lanes_)));
}

void Emitter::accumulate(Val value) {
  const Inst& inst = kernel_.insts[value];
  const Accumulator& accumulator = accumulators_[value];
  const bool across = plan_.vector_dim >= 0 && !plan_.outer_vector;
  const bool remainder = across && lanes_ == 1 && accumulator.scalar.value;
  for (int pack = 0; pack < packs_; ++pack) {
    const Accumulator::Slot& slot = remainder ? accumulator.scalar : accumulator.packs[pack];
    Found item{lanes_of(inst.args[0], pack)};
    Found so_far{ir_.CreateLoad(slot.value->getAllocatedType(), slot.value)};
    if (slot.position) {
      item.position = flat_position(pack);
      so_far.position = ir_.CreateLoad(slot.position->getAllocatedType(), slot.position);
    }
    Found next = combine(inst, item, so_far);
    if (across && mask_) {
      next.value = ir_.CreateSelect(mask_, next.value, so_far.value);
      if (slot.position) next.position = ir_.CreateSelect(mask_, next.position, so_far.position);
    }
    ir_.CreateStore(next.value, slot.value);
    if (slot.position) ir_.CreateStore(next.position, slot.position);
  }
}

// Halves combined until one lane is left.
Found Emitter::across_lanes(const Inst& inst, Found found) {
  while (auto* type = llvm::dyn_cast<llvm::FixedVectorType>(found.value->getType())) {
    const int half = static_cast<int>(type->getNumElements()) / 2;
    auto part = [&](Value* vector, int first) -> Value* {
      if (!vector) return nullptr;
      if (half == 1) return ir_.CreateExtractElement(vector, static_cast<uint64_t>(first));
      llvm::SmallVector<int, 32> lanes(half);
      for (int i = 0; i < half; ++i) lanes[i] = first + i;
      return ir_.CreateShuffleVector(vector, lanes);
    };
    found = combine(inst, {part(found.value, half), part(found.position, half)},
                    {part(found.value, 0), part(found.position, 0)});
  }
  return found;
}

Found Emitter::read_slot(const Accumulator::Slot& slot) {
  Found found{ir_.CreateLoad(slot.value->getAllocatedType(), slot.value)};
  if (slot.position)
    found.position = ir_.CreateLoad(slot.position->getAllocatedType(), slot.position);
  return found;
}

Value* Emitter::reduced_result(const Found& found) {
  if (!found.position) return found.value;
  // Where every value was the worst there is, none was taken: the first is as good as any.
  llvm::Type* type = found.position->getType();
  Value* none = ir_.CreateICmpEQ(found.position, extreme(type, DType::i64, true));
  Value* position = ir_.CreateSelect(none, integer_of(type, 0), found.position);
  return ir_.CreateSExt(position, with_lanes(ir_.getInt64Ty(), type));
}

// What was found behind the last loop: per pack where lanes are results of their own, else one.
llvm::SmallVector<Found, 4> Emitter::reduced(Val value) {
  const Inst& inst = kernel_.insts[value];
  const Accumulator& accumulator = accumulators_[value];
  const auto& packs = accumulator.totals.empty() ? accumulator.packs : accumulator.totals.back();
  llvm::SmallVector<Found, 4> found;
  for (const Accumulator::Slot& slot : packs) found.push_back(read_slot(slot));
  if (plan_.vector_dim < 0 || plan_.outer_vector) return found;
  for (size_t step = 1; step < found.size(); step *= 2)
    for (size_t i = 0; i + step < found.size(); i += 2 * step)
      found[i] = combine(inst, found[i + step], found[i]);
  Found total = across_lanes(inst, found[0]);
  if (accumulator.scalar.value) total = combine(inst, read_slot(accumulator.scalar), total);
  return {total};
}

void Emitter::close_accumulator(Val value) {
  Parts parts;
  for (const Found& found : reduced(value)) parts.push_back(reduced_result(found));
  scopes_[depth_of_bit_[kPoint]].values[value] = std::move(parts);
}

}  // namespace smelt::cpu
