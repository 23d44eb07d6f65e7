#include "codegen/cpu/emitter.h"

#include <llvm/IR/IntrinsicsX86.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "codegen/cpu/types.h"

namespace smelt::cpu {

Emitter::Emitter(const loops::Kernel& kernel, const Plan& plan, const CpuOptions& options,
                 llvm::Module& module, const std::string& name, Part part)
    : kernel_(kernel),
      plan_(plan),
      part_(part),
      module_(module),
      context_(module.getContext()),
      ir_(module.getContext()),
      size_params_(loops::size_params(kernel)),
      dim_value_(kernel.dims()) {
  llvm::FastMathFlags flags;
  flags.setAllowContract(options.contract);
  ir_.setFastMathFlags(flags);
  open_function(name);
}

void Emitter::open_function(const std::string& name) {
  llvm::Type* pointer = ir_.getPtrTy();
  llvm::Type* i64 = ir_.getInt64Ty();
  auto* type = llvm::FunctionType::get(ir_.getInt1Ty(),
                                       {pointer, pointer, pointer, i64, i64, pointer}, false);
  function_ = llvm::Function::Create(type, llvm::Function::ExternalLinkage, name, module_);
  function_->setDoesNotThrow();
  function_->addRetAttr(llvm::Attribute::ZExt);
  // Without these LLVM may cut 512-bit vectors in two.
  const std::string bits = std::to_string(host_target().vector_bits);
  function_->addFnAttr("prefer-vector-width", bits);
  function_->addFnAttr("min-legal-vector-width", bits);
  buffers_ = function_->getArg(0);
  sizes_ = function_->getArg(1);
  params_ = function_->getArg(2);
  begin_ = function_->getArg(3);
  end_ = function_->getArg(4);
  scratch_ = function_->getArg(5);
  entry_ = llvm::BasicBlock::Create(context_, "entry", function_);
  ir_.SetInsertPoint(entry_);
}

llvm::AllocaInst* Emitter::slot(llvm::Type* type, const char* name) {
  llvm::IRBuilder<> at(entry_, entry_->begin());
  return at.CreateAlloca(type, nullptr, name);
}

void Emitter::run() {
  scopes_.emplace_back();
  failed_ = slot(ir_.getInt64Ty(), "failed");
  ir_.CreateStore(number(0), failed_);
  allocate_scratch();
  emit_items();
  for (const auto& [slot, memory] : allocated_) {
    ir_.CreateCall(module_.getOrInsertFunction("free", ir_.getVoidTy(), ir_.getPtrTy()), memory);
  }
  // Other threads may read what was written past the caches.
  if (!stream_masks_.empty()) ir_.CreateIntrinsic(llvm::Intrinsic::x86_sse_sfence, {}, {});
  ir_.CreateRet(ir_.CreateICmpEQ(ir_.CreateLoad(ir_.getInt64Ty(), failed_), number(0)));
}

// The caller brings scratch memory whose size was known when the kernel was compiled; other scratch
// is allocated once per call.
void Emitter::allocate_scratch() {
  for (size_t i = 0; i < kernel_.buffers.size(); ++i) {
    const loops::Buffer& buffer = kernel_.buffers[i];
    if (buffer.kind != loops::Buffer::Kind::scratch || buffer.elements.is_known()) continue;
    const int copies = plan_.outer_vector ? plan_.lanes * plan_.packs : 1;
    Value* bytes = ir_.CreateMul(size_value(buffer.elements),
                                 number(int64_t{copies} * bytes_of(buffer.dtype)));
    auto allocate = module_.getOrInsertFunction("malloc", ir_.getPtrTy(), ir_.getInt64Ty());
    allocated_[static_cast<int32_t>(i)] = ir_.CreateCall(allocate, bytes);
  }
}

Value* Emitter::size_value(const Size& size) {
  if (size.is_known()) return number(size.known());
  const auto found = std::find(size_params_.begin(), size_params_.end(), size);
  SMELT_CHECK(found != size_params_.end(), "size " + size.str() + " is not a parameter");
  Value* loaded = nullptr;
  at_depth(0, [&] {
    Value* at = ir_.CreateConstInBoundsGEP1_64(ir_.getInt64Ty(), sizes_,
                                               static_cast<uint64_t>(found - size_params_.begin()));
    loaded = ir_.CreateLoad(ir_.getInt64Ty(), at);
  });
  return loaded;
}

// As Plan::units is worked out: unit_points by (1 more than) the points of an item, at least 1.
Value* Emitter::items_per_unit() {
  if (part_ != Part::whole) return number(1);
  Value* points = number(1);
  for (int dim = 0; dim < kernel_.dims(); ++dim)
    if (std::find(plan_.digits.begin(), plan_.digits.end(), dim) == plan_.digits.end())
      points = ir_.CreateMul(points, extent(dim));
  points = ir_.CreateAdd(points, number(1));
  Value* items = ir_.CreateUDiv(number(plan_.unit_points), points);
  return ir_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, items, number(1));
}

void Emitter::emit_items() {
  std::vector<Value*> limits;
  for (int dim : plan_.digits) limits.push_back(extent(dim));
  auto add_blocks = [&](int dim, int64_t length) {
    Value* last = ir_.CreateAdd(extent(dim), number(length - 1));
    limits.push_back(ir_.CreateUDiv(last, number(length)));
  };
  if (plan_.tile_dim >= 0) add_blocks(plan_.tile_dim, plan_.tile);
  if (plan_.outer_vector) add_blocks(plan_.vector_dim, plan_.block);
  if (part_ == Part::slices) limits.push_back(number(plan_.slices));
  Value* items = number(1);
  for (Value* limit : limits) items = ir_.CreateMul(items, limit);
  Value* per_unit = items_per_unit();
  Value* first = ir_.CreateMul(begin_, per_unit);
  Value* last =
      ir_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, ir_.CreateMul(end_, per_unit), items);
  count_through(first, last, limits, [&](std::span<Value* const> digits) {
    for (size_t i = 0; i < plan_.digits.size(); ++i) {
      dim_value_[plan_.digits[i]] = digits[i];
      depth_of_bit_[plan_.digits[i]] = depth();
    }
    digits = digits.subspan(plan_.digits.size());
    if (part_ == Part::slices) {
      slice_ = digits.back();
      digits = digits.first(digits.size() - 1);
    }
    emit_item(digits);
  });
}

// A loop over [first, last), each number as digits below `limits`, the last of which counts
// fastest. The first number is taken apart by division, from there on the digits are counted up
// with carries.
void Emitter::count_through(Value* first, Value* last, std::span<Value* const> limits,
                            llvm::function_ref<void(std::span<Value* const>)> body) {
  llvm::Type* i64 = ir_.getInt64Ty();
  auto is_one = [](Value* limit) {
    auto* constant = llvm::dyn_cast<llvm::ConstantInt>(limit);
    return constant && constant->isOne();
  };
  std::vector<llvm::AllocaInst*> slots(limits.size(), nullptr);
  Value* rest = first;
  for (size_t i = limits.size(); i-- > 0;) {
    if (is_one(limits[i])) continue;
    slots[i] = slot(i64, "digit");
    // An extent may be 0, and then the loop is not entered; but here it is divided by.
    Value* limit = ir_.CreateBinaryIntrinsic(llvm::Intrinsic::umax, limits[i], number(1));
    ir_.CreateStore(i == 0 ? rest : ir_.CreateURem(rest, limit), slots[i]);
    if (i != 0) rest = ir_.CreateUDiv(rest, limit);
  }
  counted_loop(first, last, 1, [&](Value*) {
    std::vector<Value*> digits;
    for (llvm::AllocaInst* slot : slots)
      digits.push_back(slot ? static_cast<Value*>(ir_.CreateLoad(i64, slot)) : number(0));
    body(digits);
    Value* carry = number(1);
    for (size_t i = digits.size(); i-- > 0;) {
      if (!slots[i]) continue;
      Value* next = ir_.CreateAdd(digits[i], carry);
      Value* wraps = ir_.CreateICmpEQ(next, limits[i]);
      ir_.CreateStore(i == 0 ? next : ir_.CreateSelect(wraps, number(0), next), slots[i]);
      carry = ir_.CreateZExt(wraps, i64);
    }
  });
}

Value* Emitter::chunk_end(Value* begin, Value* length, Value* end) {
  return ir_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, ir_.CreateAdd(begin, length), end);
}

// The block of a dimension that has a number.
Emitter::Range Emitter::block_range(int dim, Value* block, int64_t length) {
  const Size& size = kernel_.extent(dim);
  const int64_t known = size.as_known().value_or(1);
  if (size.is_known() && known <= length) return {number(0), number(known), known};
  Value* begin = ir_.CreateMul(block, number(length));
  return {begin, chunk_end(begin, number(length), extent(dim)), std::gcd(known, length)};
}

void Emitter::emit_item(std::span<Value* const> blocks) {
  if (!plan_.outer_vector) return emit_point();
  const Range range = block_range(plan_.vector_dim, blocks.back(), plan_.block);
  const Inst* lead = nullptr;
  for (const loops::Stage& stage : kernel_.stages)
    if (!lead) lead = stream_lead(stage);
  if (plan_.tile_dim < 0) return vector_loop(range, lead, [&] { emit_point(); });
  const Range other = block_range(plan_.tile_dim, blocks.front(), plan_.tile);
  vector_loop(range, nullptr, [&] {
    counted_loop(other.begin, other.end, 1, [&](Value* i) {
      dim_value_[plan_.tile_dim] = i;
      depth_of_bit_[plan_.tile_dim] = depth();
      emit_point();
    });
  });
}

}  // namespace smelt::cpu
