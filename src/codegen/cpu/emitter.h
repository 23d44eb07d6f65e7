// Writes one kernel as an LLVM function.
//
// Instructions are written on demand, each at the outermost loop that has all it depends on: there
// is a stack of scopes (the function, the item, then one per open loop), and code for a scope that
// is not the innermost goes in front of the branch into the loop nested in it. Stores wait for the
// end of their stage's body, because an output may be the same memory as an input that is read at
// the same place.
#pragma once

#include <llvm/ADT/STLFunctionalExtras.h>
#include <llvm/ADT/SmallVector.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include <map>
#include <span>
#include <string>
#include <vector>

#include "codegen/cpu/plan.h"
#include "loops/kernel.h"

namespace smelt::cpu {

using llvm::Value;
using loops::Index;
using loops::Inst;
using loops::Op;
using loops::Val;

// A value of the kernel in registers. Varying: one vector per pack (or scalar, where the loop goes
// by scalars), else a single scalar.
using Parts = llvm::SmallVector<Value*, 4>;

struct Scope {
  llvm::Instruction* end = nullptr;  // the branch into what is nested; null in the innermost scope
  std::map<Val, Parts> values;
  std::map<Val, Value*> splats;
};

// How an access moves with the vector dimension.
struct Access {
  enum class Walk : uint8_t { uniform, contiguous, strided, rows, scattered };
  Walk walk = Walk::uniform;
  Value* pointer = nullptr;  // of the first lane of the first pack (scattered: without `offsets`)
  Value* stride = nullptr;   // strided, rows: in elements
  int row = 0;               // rows: lanes of one
  bool along = false;        // rows: its elements are neighbours, or all the same
  Parts offsets;             // scattered: in elements, per pack
};

// What a reduction or scan has so far: per pack, and of the scalar remainder.
struct Accumulator {
  struct Slot {
    llvm::AllocaInst* value = nullptr;
    llvm::AllocaInst* position = nullptr;  // argmin, argmax
  };
  llvm::SmallVector<Slot, 4> packs;
  Slot scalar;
  // Of a sum in chunks: per level, and per pack, of the chunks before; empty where there is one
  // only.
  std::vector<llvm::SmallVector<Slot, 4>> totals;
};
struct Found {
  Value* value = nullptr;
  Value* position = nullptr;
};

class Emitter {
 public:
  // All of a kernel; or its inner stage, slice by slice; or what is left to do after that.
  enum class Part : uint8_t { whole, slices, finish };

  Emitter(const loops::Kernel& kernel, const Plan& plan, const CpuOptions& options,
          llvm::Module& module, const std::string& name, Part part);
  void run();

 private:
  using Body = llvm::function_ref<void()>;
  using CountedBody = llvm::function_ref<void(Value*)>;
  struct Range {
    Value *begin, *end;
    int64_t multiple;  // a known divisor of end - begin
  };
  using RangeBody = llvm::function_ref<void(const Range&)>;
  // The lengths of chunks that a dimension is walked in, ascending, and the level of the first.
  struct Chunks {
    std::vector<int64_t> lengths;
    size_t level = 0;
  };

  llvm::ConstantInt* number(int64_t n) { return ir_.getInt64(static_cast<uint64_t>(n)); }

  // emitter.cpp
  void open_function(const std::string& name);
  void allocate_scratch();
  void emit_items();
  void count_through(Value* first, Value* last, std::span<Value* const> limits,
                     llvm::function_ref<void(std::span<Value* const>)> body);
  void emit_item(std::span<Value* const> blocks);
  Range block_range(int dim, Value* block, int64_t length);
  Value* size_value(const Size& size);
  Value* extent(int dim) { return size_value(kernel_.extent(dim)); }
  Value* items_per_unit();
  llvm::AllocaInst* slot(llvm::Type* type, const char* name);

  // loop_nest.cpp
  void counted_loop(Value* begin, Value* end, int64_t step, CountedBody body);
  // begin + length, or the end of all if that comes first.
  Value* chunk_end(Value* begin, Value* length, Value* end);
  void run_once(Value* at, CountedBody body);
  Range inner_range(int dim);
  void vector_loop(const Range& range, const Inst* lead, Body body);
  void remainder_loop(Value* begin, Value* end, Body body);
  void vector_step(Value* at, int lanes, int packs, Value* end, Body body);
  void emit_point();
  void emit_inner_stage(const loops::Stage& stage);
  void emit_inner_loops(const loops::Stage& stage, int dim);
  void emit_innermost_loop(const loops::Stage& stage);
  int innermost_dim() const;
  void emit_body(const loops::Stage& stage);
  void guarded(Body body);

  // chunks.cpp
  void plan_chunks(const loops::Stage& stage);
  void in_chunks(const loops::Stage& stage, int dim, const Range& range, RangeBody body);
  void in_chunks(const loops::Stage& stage, int dim, size_t chunks, const Range& range,
                 RangeBody body);
  void close_chunk(const loops::Stage& stage, size_t level);

  // values.cpp
  int depth() const { return static_cast<int>(scopes_.size()) - 1; }
  int depth_of(uint64_t depends) const;
  void at_depth(int depth, Body write);
  bool is_varying(uint64_t depends) const;
  bool is_varying(Val value) const { return is_varying(plan_.depends[value]); }
  const Parts& parts_of(Val value);
  Value* scalar_of(Val value) { return parts_of(value)[0]; }
  Value* lanes_of(Val value, int pack);  // a vector, also of what is uniform
  Value* splat(Value* scalar, int lanes);
  Value* lane_numbers(llvm::Type* element, int64_t first = 0) const;
  Parts emit(Val value);
  Parts emit_check(Val value);
  Parts emit_division(Val value);
  Value* emit_constant(const Inst& inst);
  Value* emit_param(const Inst& inst);
  void fail_where(Value* condition, bool varying);

  // indices.cpp
  uint64_t depends_of(const Index& index) const { return cpu::depends_of(index, plan_.depends); }
  uint64_t depends_of(const loops::Atom& atom) const;
  Value* scalar_atom(const loops::Atom& atom);
  Value* scalar_index(const Index& index);
  Value* vector_atom(const loops::Atom& atom, int pack, llvm::Type* type);
  Value* vector_index(const Index& index, int pack, llvm::Type* type, bool varying_terms_only);
  Value* divide(const loops::Atom& atom, Value* dividend, Value* divisor);
  llvm::Type* lane_index_type(const Index& index);
  Parts emit_index(Val value);

  // memory.cpp
  Access access(const Inst& inst);
  Value* buffer_pointer(int32_t slot);
  Value* pack_pointer(const Access& access, llvm::Type* element, int pack);
  Value* lane_offsets(const Access& access, int pack);
  bool walks_rows(const Inst& inst, Access& access);
  Value* row_pointer(const Access& access, llvm::Type* element, int pack, int row);
  Value* load_rows(const Access& access, llvm::Type* element, int pack);
  void store_rows(const Access& access, llvm::Type* element, int pack, Value* value);
  Parts emit_load(Val value);
  Value* load_part(const Inst& inst, const Access& access, int pack);
  void emit_store(const Inst& inst);
  void store_part(const Inst& inst, const Access& access, int pack, Value* value);
  bool is_lane_scratch(int32_t slot) const;

  // streams.cpp
  const Inst* stream_lead(const loops::Stage& stage) const;
  Value* aligned_begin(const Range& range, const Inst& lead);
  Value* is_large();
  Value* stream_mask(int32_t slot, int64_t vector_bytes);
  bool can_stream(const Inst& inst, const Access& access) const;
  void store_streamed(const Inst& inst, Value* pointer, Value* value);
  void prefetch(Val load, const Access& access, int pack);

  // slices.cpp
  Value* partial_pointer(Val value, bool position, Value* slice, int pack);
  void store_slice(Val value);
  Found load_slice(Val value, Value* slice, int pack);
  void combine_slices(const loops::Stage& stage);

  // accumulate.cpp
  void emit_accumulate(const Inst& inst);
  void accumulate_lanes(const Inst& inst, const Access& access, int pack, Value* value);
  void combine_at(Value* pointer, const Inst& inst, Value* value);
  void emit_scan(Val value);

  // reductions.cpp
  void open_accumulator(Val value, bool by_scalars);
  void accumulate(Val value);
  void close_accumulator(Val value);
  llvm::SmallVector<Found, 4> reduced(Val value);
  Found read_slot(const Accumulator::Slot& slot);
  Value* reduced_result(const Found& found);
  Accumulator::Slot new_slot(const Inst& inst, int lanes);
  void clear_slot(const Inst& inst, const Accumulator::Slot& slot, int lanes);
  void combine_into(const Inst& inst, const Found& item, const Accumulator::Slot& slot);
  Value* identity(const Inst& inst, int lanes);
  Found combine(const Inst& inst, Found item, Found so_far);
  Found across_lanes(const Inst& inst, Found found);
  Value* flat_position(int pack);
  llvm::Type* position_type();
  DType reduced_dtype(const Inst& inst) const { return kernel_.insts[inst.args[0]].dtype; }

  const loops::Kernel& kernel_;
  const Plan& plan_;
  const Part part_;
  llvm::Module& module_;
  llvm::LLVMContext& context_;
  llvm::IRBuilder<> ir_;
  llvm::Function* function_ = nullptr;
  llvm::BasicBlock* entry_ = nullptr;
  Sizes size_params_;
  Value *buffers_ = nullptr, *sizes_ = nullptr, *params_ = nullptr, *scratch_ = nullptr;
  Value *begin_ = nullptr, *end_ = nullptr;
  llvm::AllocaInst* failed_ = nullptr;
  std::map<int32_t, Value*> allocated_;  // scratch buffers of unknown size
  std::map<int32_t, Value*> stream_masks_;
  Value* slice_ = nullptr;

  std::vector<Scope> scopes_;
  int depth_of_bit_[64] = {};
  std::vector<Value*> dim_value_;  // of the vector dimension: the first lane's
  std::map<Val, Accumulator> accumulators_;
  std::vector<Chunks> chunks_;  // by dimension, of the stage being written
  size_t levels_ = 0;           // of chunks, in that stage

  // The loop step being written.
  int lanes_ = 1, packs_ = 1;
  Value* mask_ = nullptr;    // lanes in use; null: all
  Value* active_ = nullptr;  // their number, with a mask
};

}  // namespace smelt::cpu
