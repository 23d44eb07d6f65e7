// Writes kernels: appends instructions with their dtypes worked out, constants folded and equal
// ones shared (within what may see them). Expr is a value with operators, so that what an op means
// reads like mathematics.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "loops/kernel.h"

namespace smelt::loops {

class Builder {
 public:
  explicit Builder(Kernel& kernel);  // new, or to be continued

  Kernel& kernel() { return kernel_; }
  DType dtype(Val value) const { return kernel_.insts[value].dtype; }
  Extents extents() const;

  int32_t add_buffer(DType dtype, Buffer::Kind kind, Size elements);
  // Instructions go to the stage begun last. One that is still empty is replaced.
  void begin_stage(bool inner);
  bool in_inner_stage() const { return kernel_.stages.back().inner; }

  Val constant(DType dtype, double number);
  Val constant(DType dtype, int64_t integer);
  Val param(int32_t slot, DType dtype);
  Val index(const Index& index);
  Val load(int32_t buffer, const Index& index);
  void store(int32_t buffer, const Index& index, Val value);  // casts to the buffer's dtype
  void accumulate(int32_t buffer, const Index& index, Val value,
                  Reduction reduction = Reduction::sum);
  Val check(Val value, const Size& bound);
  Val reduce(Reduction reduction, Val value);
  Val scan(Reduction reduction, Val value);
  Val cast(Val value, DType dtype);  // to and from f16 and bf16 by way of f32
  // The arguments have one dtype (select: the last two), which the op must accept. A select of
  // half-precision values is made in f32.
  Val op(Op op, Val a, Val b = -1, Val c = -1);
  // random_bits or random_normal; the arguments are i64.
  Val random(Op op, Val key, Val stream, Val place);
  // The value as part of an index.
  Index as_index(Val value);

 private:
  Val append(Inst inst);
  Val push(Inst inst);
  bool may_share(Val earlier, const Inst& inst) const;
  void check_value(Val value) const;
  void check_slot(int32_t buffer) const;
  void check_index(const Index& index) const;
  Val append_cast(Val value, DType dtype);
  void write(Op op, int32_t buffer, const Index& index, Val value, Reduction reduction);

  // In builder_fold.cpp. -1: nothing simpler.
  const Inst* constant_at(Val value) const;
  bool is_number(Val value, double number) const;
  Val fold_constants(Op op, Val a, Val b);
  Val fold_index(Op op, Val a, Val b);
  Val fold_floating(Op op, Val a, Val b);
  Val fold_integral(Op op, Val a, Val b);
  Val fold_boolean(Op op, Val a, Val b);
  Val fold_unary(Op op, Val a);
  Val fold_equal(Op op, Val a);
  Val fold_select(Val condition, Val yes, Val no);
  Val fold_cast(Val value, DType dtype);
  Val simpler(Op op, Val a, Val b);

  Kernel& kernel_;
  mutable Sizes extents_;
  std::unordered_multimap<uint64_t, Val> seen_;  // by hash, of what the current stage may see
  std::vector<bool> hidden_;                     // values the current stage does not see
  std::vector<Val> last_write_;                  // per buffer; -1, or not there, if none
};

// A value of a kernel being written. Both operands of an operator must have one dtype; a number is
// taken as the dtype of the other.
struct Expr {
  Builder* builder = nullptr;
  Val value = -1;

  DType dtype() const { return builder->dtype(value); }
  Expr to(DType dtype) const { return {builder, builder->cast(value, dtype)}; }
  Expr like(double number) const;  // a constant of this dtype
};

#define SMELT_BINARY(symbol)              \
  Expr operator symbol(Expr a, Expr b);   \
  Expr operator symbol(Expr a, double b); \
  Expr operator symbol(double a, Expr b);
SMELT_BINARY(+)
SMELT_BINARY(-)
SMELT_BINARY(*)
SMELT_BINARY(/)
SMELT_BINARY(<)
SMELT_BINARY(<=)
SMELT_BINARY(>)
SMELT_BINARY(>=)
SMELT_BINARY(==)
SMELT_BINARY(!=)
#undef SMELT_BINARY
Expr operator-(Expr a);
Expr operator!(Expr a);  // of a b8
Expr operator&(Expr a, Expr b);
Expr operator|(Expr a, Expr b);
Expr operator^(Expr a, Expr b);

Expr apply(Op op, Expr a);
Expr apply(Op op, Expr a, Expr b);
Expr select(Expr condition, Expr yes, Expr no);
Expr select(Expr condition, Expr yes, double no);
Expr select(Expr condition, double yes, Expr no);
Expr min(Expr a, Expr b);
Expr max(Expr a, Expr b);
Expr min(Expr a, double b);
Expr max(Expr a, double b);
Expr is_nan(Expr a);
#define SMELT_UNARY(name) \
  inline Expr name(Expr a) { return apply(Op::name, a); }
SMELT_UNARY(abs)
SMELT_UNARY(floor)
SMELT_UNARY(ceil)
SMELT_UNARY(round)
SMELT_UNARY(trunc)
SMELT_UNARY(sqrt)
SMELT_UNARY(rsqrt)
SMELT_UNARY(exp)
SMELT_UNARY(exp2)
SMELT_UNARY(expm1)
SMELT_UNARY(log)
SMELT_UNARY(log2)
SMELT_UNARY(log10)
SMELT_UNARY(log1p)
SMELT_UNARY(sin)
SMELT_UNARY(cos)
SMELT_UNARY(tan)
SMELT_UNARY(asin)
SMELT_UNARY(acos)
SMELT_UNARY(atan)
SMELT_UNARY(sinh)
SMELT_UNARY(cosh)
SMELT_UNARY(tanh)
SMELT_UNARY(asinh)
SMELT_UNARY(acosh)
SMELT_UNARY(atanh)
SMELT_UNARY(erf)
SMELT_UNARY(erfc)
SMELT_UNARY(sigmoid)
#undef SMELT_UNARY
inline Expr pow(Expr a, Expr b) { return apply(Op::pow, a, b); }
inline Expr fmod(Expr a, Expr b) { return apply(Op::mod, a, b); }
inline Expr atan2(Expr a, Expr b) { return apply(Op::atan2, a, b); }
inline Expr copysign(Expr a, Expr b) { return apply(Op::copysign, a, b); }

}  // namespace smelt::loops
