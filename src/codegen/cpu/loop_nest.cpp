// Loops, and the walk through stages and instructions.
#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "codegen/cpu/arithmetic.h"
#include "codegen/cpu/emitter.h"
#include "codegen/cpu/types.h"
#include "loops/may_fail.h"

namespace smelt::cpu {

// One pass through `body` in a scope of its own, without a loop.
void Emitter::run_once(Value* at, CountedBody body) {
  auto* block = llvm::BasicBlock::Create(context_, "once", function_);
  scopes_.back().end = ir_.CreateBr(block);
  ir_.SetInsertPoint(block);
  scopes_.emplace_back();
  body(at);
  scopes_.pop_back();
  scopes_.back().end = nullptr;
}

// for (i = begin; i < end; i += step). The test stands at the end; in front of the loop there is
// another, and code of the scopes around goes before that one.
void Emitter::counted_loop(Value* begin, Value* end, int64_t step, CountedBody body) {
  auto* first = llvm::dyn_cast<llvm::ConstantInt>(begin);
  auto* last = llvm::dyn_cast<llvm::ConstantInt>(end);
  const bool known = first && last;
  if (known && first->getSExtValue() >= last->getSExtValue()) return;
  if (known && first->getSExtValue() + step >= last->getSExtValue()) return run_once(begin, body);

  auto* loop = llvm::BasicBlock::Create(context_, "loop", function_);
  auto* after = llvm::BasicBlock::Create(context_, "after", function_);
  llvm::BasicBlock* before = ir_.GetInsertBlock();
  scopes_.back().end =
      known ? ir_.CreateBr(loop) : ir_.CreateCondBr(ir_.CreateICmpSLT(begin, end), loop, after);
  ir_.SetInsertPoint(loop);
  llvm::PHINode* i = ir_.CreatePHI(ir_.getInt64Ty(), 2, "i");
  i->addIncoming(begin, before);
  scopes_.emplace_back();
  body(i);
  scopes_.pop_back();
  scopes_.back().end = nullptr;
  Value* next = ir_.CreateNSWAdd(i, number(step));
  i->addIncoming(next, ir_.GetInsertBlock());
  ir_.CreateCondBr(ir_.CreateICmpSLT(next, end), loop, after);
  ir_.SetInsertPoint(after);
}

void Emitter::vector_step(Value* at, int lanes, int packs, Value* end, Body body) {
  lanes_ = lanes;
  packs_ = packs;
  dim_value_[plan_.vector_dim] = at;
  depth_of_bit_[plan_.vector_dim] = depth();
  if (end) {
    active_ = ir_.CreateSub(end, at);
    // Lane numbers are small: 32 bits do, once what is left is limited to them.
    Value* limit = ir_.CreateTrunc(
        ir_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, active_, number(lanes)), ir_.getInt32Ty());
    mask_ = ir_.CreateICmpULT(lane_numbers(ir_.getInt32Ty()), splat(limit, lanes));
  }
  body();
  lanes_ = packs_ = 1;
  mask_ = active_ = nullptr;
}

// Points that are no whole vector.
void Emitter::remainder_loop(Value* begin, Value* end, Body body) {
  const int lanes = plan_.lanes;
  if (plan_.masked_tail)
    return counted_loop(begin, end, lanes, [&](Value* i) { vector_step(i, lanes, 1, end, body); });
  counted_loop(begin, end, 1, [&](Value* i) { vector_step(i, 1, 1, nullptr, body); });
}

// What comes before the first place where `lead`, if there is one, stores to a whole vector's
// boundary; then whole vectors, then what is left.
void Emitter::vector_loop(const Range& range, const Inst* lead, Body body) {
  auto [begin, end, multiple] = range;
  if (lead) {
    Value* aligned = aligned_begin(range, *lead);
    remainder_loop(begin, aligned, body);
    begin = aligned;
    multiple = 1;
  }
  const int lanes = plan_.lanes;
  const int64_t step = static_cast<int64_t>(lanes) * plan_.packs;
  Value* count = ir_.CreateSub(end, begin);
  Value* whole = ir_.CreateSub(count, ir_.CreateURem(count, number(step)));
  Value* main_end = ir_.CreateAdd(begin, whole);
  counted_loop(begin, main_end, step,
               [&](Value* i) { vector_step(i, lanes, plan_.packs, nullptr, body); });
  if (multiple % step == 0) return;
  if (multiple % lanes == 0)
    return counted_loop(main_end, end, lanes,
                        [&](Value* i) { vector_step(i, lanes, 1, nullptr, body); });
  remainder_loop(main_end, end, body);
}

void Emitter::emit_point() {
  depth_of_bit_[kPoint] = depth();
  for (const loops::Stage& stage : kernel_.stages) {
    if (stage.inner)
      part_ == Part::finish ? combine_slices(stage) : emit_inner_stage(stage);
    else if (part_ != Part::slices)
      emit_body(stage);
  }
}

// What is walked of an inner dimension: all, or a slice.
Emitter::Range Emitter::inner_range(int dim) {
  if (part_ == Part::slices && dim == plan_.slice_dim) return block_range(dim, slice_, plan_.slice);
  return {number(0), extent(dim), kernel_.extent(dim).as_known().value_or(1)};
}

// `body` in a scope that is entered only if no inner dimension is empty.
void Emitter::guarded(Body body) {
  if (!needs_guard(kernel_)) return body();
  Value* some = ir_.getTrue();
  for (const Size& size : kernel_.inner)
    some = ir_.CreateAnd(some, ir_.CreateICmpSGT(size_value(size), number(0)));
  auto* then = llvm::BasicBlock::Create(context_, "some", function_);
  auto* after = llvm::BasicBlock::Create(context_, "after", function_);
  scopes_.back().end = ir_.CreateCondBr(some, then, after);
  ir_.SetInsertPoint(then);
  scopes_.emplace_back();
  depth_of_bit_[kGuard] = depth();
  body();
  scopes_.pop_back();
  scopes_.back().end = nullptr;
  ir_.CreateBr(after);
  ir_.SetInsertPoint(after);
}

void Emitter::emit_inner_stage(const loops::Stage& stage) {
  plan_chunks(stage);
  const bool scans = has_scan(kernel_, stage);
  for (Val v = stage.begin; v < stage.end; ++v)
    if (kernel_.insts[v].op == Op::reduce || kernel_.insts[v].op == Op::scan)
      open_accumulator(v, scans);
  const bool empty = std::any_of(kernel_.inner.begin(), kernel_.inner.end(),
                                 [](const Size& size) { return size.is(0); });
  if (!empty) guarded([&] { emit_inner_loops(stage, static_cast<int>(kernel_.outer.size())); });
  for (Val v = stage.begin; v < stage.end; ++v)
    if (kernel_.insts[v].op == Op::reduce)
      part_ == Part::slices ? store_slice(v) : close_accumulator(v);
}

int Emitter::innermost_dim() const {
  const bool inner_vector = plan_.vector_dim >= static_cast<int>(kernel_.outer.size());
  return inner_vector ? plan_.vector_dim : kernel_.dims() - 1;
}

void Emitter::emit_innermost_loop(const loops::Stage& stage) {
  const int dim = innermost_dim();
  // A scan along the vector dimension needs its points one after the other.
  const bool scans = has_scan(kernel_, stage);
  auto walk = [&](const Range& range) {
    if (dim == plan_.vector_dim && scans)
      return counted_loop(range.begin, range.end, 1, [&](Value* i) {
        vector_step(i, 1, 1, nullptr, [&] { emit_body(stage); });
      });
    if (dim == plan_.vector_dim)
      return vector_loop(range, stream_lead(stage), [&] { emit_body(stage); });
    counted_loop(range.begin, range.end, 1, [&](Value* i) {
      dim_value_[dim] = i;
      depth_of_bit_[dim] = depth();
      emit_body(stage);
    });
  };
  in_chunks(stage, dim, inner_range(dim), walk);
}

// The dimensions from `dim` on.
void Emitter::emit_inner_loops(const loops::Stage& stage, int dim) {
  if (dim == kernel_.dims())
    return kernel_.inner.empty() ? emit_body(stage) : emit_innermost_loop(stage);
  if (dim == innermost_dim()) return emit_inner_loops(stage, dim + 1);
  in_chunks(stage, dim, inner_range(dim), [&](const Range& range) {
    counted_loop(range.begin, range.end, 1, [&](Value* i) {
      dim_value_[dim] = i;
      depth_of_bit_[dim] = depth();
      emit_inner_loops(stage, dim + 1);
    });
  });
}

void Emitter::emit_body(const loops::Stage& stage) {
  depth_of_bit_[kBody] = depth();
  llvm::SmallVector<const Inst*, 4> pending;
  auto flush = [&] {
    for (const Inst* inst : pending)
      inst->op == Op::store ? emit_store(*inst) : emit_accumulate(*inst);
    pending.clear();
  };
  for (Val v = stage.begin; v < stage.end; ++v) {
    const Inst& inst = kernel_.insts[v];
    switch (inst.op) {
      case Op::load:
        // What this body writes and reads back must be written by then.
        if (std::any_of(pending.begin(), pending.end(),
                        [&](const Inst* p) { return p->slot == inst.slot; }))
          flush();
        parts_of(v);
        break;
      case Op::store:
      case Op::accumulate:
        parts_of(inst.args[0]);
        pending.push_back(&inst);
        break;
      case Op::reduce: accumulate(v); break;
      case Op::scan: emit_scan(v); break;
      default:
        if (loops::may_fail(inst.op, inst.dtype)) parts_of(v);
        break;
    }
  }
  flush();
}

}  // namespace smelt::cpu
