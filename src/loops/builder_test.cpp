#include "loops/builder.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"

namespace smelt::loops {
namespace {

class BuilderTest : public testing::Test {
 protected:
  BuilderTest() : builder(kernel) {
    kernel.outer = {4};
    kernel.inner = {3};
    builder.begin_stage(true);
  }
  Expr load(DType dtype) {
    int32_t buffer = builder.add_buffer(dtype, Buffer::Kind::input, 12);
    return {&builder, builder.load(buffer, Index::dim(0) * 3 + Index::dim(1))};
  }
  const Inst& inst(Expr x) const { return kernel.insts[x.value]; }
  bool is_constant(Expr x, double number) const {
    double value = is_floating(x.dtype()) ? inst(x).number : static_cast<double>(inst(x).integer);
    return inst(x).op == Op::constant && value == number;
  }

  Kernel kernel;
  Builder builder;
};

bool same_value(Expr a, Expr b) { return a.value == b.value; }

TEST_F(BuilderTest, FoldsConstants) {
  Expr x = load(DType::f32), two = x.like(2);
  EXPECT_TRUE(is_constant(two + two * 3.0, 8));
  EXPECT_TRUE(is_constant(exp(two - two), 1));
  EXPECT_TRUE(is_constant((two < 3.0), 1));
  EXPECT_TRUE(is_constant(two.to(DType::i64), 2));
  EXPECT_TRUE(is_constant(x.like(0.1).to(DType::f64), 0.1f));
  // This one reports failure at run time.
  Expr one = load(DType::i32).like(1);
  EXPECT_EQ(inst(one / 0.0).op, Op::div);
}

TEST_F(BuilderTest, KnowsExactIdentitiesOnly) {
  Expr x = load(DType::f32);
  EXPECT_TRUE(same_value(x * 1.0, x));
  EXPECT_TRUE(same_value(1.0 * x, x));
  EXPECT_TRUE(same_value(x / 1.0, x));
  EXPECT_TRUE(same_value(x - 0.0, x));
  EXPECT_TRUE(same_value(x + -0.0, x));
  EXPECT_TRUE(same_value(-(-x), x));
  EXPECT_TRUE(same_value(max(x, x), x));
  EXPECT_TRUE(same_value(x / 4.0, x * 0.25));
  EXPECT_EQ(inst(x + 0.0).op, Op::add);
  EXPECT_EQ(inst(x - -0.0).op, Op::sub);
  EXPECT_EQ(inst(x * 0.0).op, Op::mul);
  EXPECT_EQ(inst(x - x).op, Op::sub);
  EXPECT_EQ(inst(x == x).op, Op::eq);
  EXPECT_EQ(inst(x / 3.0).op, Op::div);
  EXPECT_TRUE(is_constant(x < x, 0));
  Expr i = load(DType::i32);
  EXPECT_TRUE(same_value(i + 0.0, i));
  EXPECT_TRUE(is_constant(i * 0.0, 0));
  EXPECT_TRUE(is_constant(i - i, 0));
  EXPECT_TRUE(is_constant(i == i, 1));
  Expr u = load(DType::u8);
  EXPECT_EQ(inst(-u).op, Op::neg);
  EXPECT_TRUE(same_value(abs(-u), -u));
}

TEST_F(BuilderTest, Selects) {
  Expr x = load(DType::f32), y = load(DType::f32), c = load(DType::b8);
  EXPECT_TRUE(same_value(select(c, x, x), x));
  EXPECT_TRUE(same_value(select(c.like(1), x, y), x));
  EXPECT_TRUE(same_value(select(!c, x, y), select(c, y, x)));
  EXPECT_TRUE(same_value(select(c, c.like(1), c.like(0)), c));
  EXPECT_TRUE(same_value(!(x == y), x != y));
  EXPECT_TRUE(same_value(!!c, c));
  Expr h = load(DType::f16), selected = select(c, h, h.like(1.5));
  EXPECT_EQ(selected.dtype(), DType::f16);
  builder.store(builder.add_buffer(DType::f16, Buffer::Kind::output, 12),
                Index::dim(0) * 3 + Index::dim(1), selected.value);
  kernel.verify();
}

TEST_F(BuilderTest, Casts) {
  Expr h = load(DType::f16), f = h.to(DType::f32);
  EXPECT_TRUE(same_value(f.to(DType::f16), h));
  EXPECT_TRUE(same_value(h.to(DType::f64), f.to(DType::f64)));
  Expr i = load(DType::i8);
  EXPECT_TRUE(same_value(i.to(DType::i32).to(DType::f32), i.to(DType::f32)));
  EXPECT_TRUE(same_value(i.to(DType::f32).to(DType::i8), i));
  Expr x = load(DType::f32);
  EXPECT_FALSE(same_value(x.to(DType::f16).to(DType::f32), x));
  EXPECT_FALSE(same_value(i.to(DType::u8).to(DType::i32), i.to(DType::i32)));
  Expr n = h.like(0.1);
  EXPECT_EQ(n.dtype(), DType::f16);
  EXPECT_EQ(inst(n.to(DType::f32)).op, Op::constant);
  kernel.verify();
}

TEST_F(BuilderTest, SharesEqualInstructionsWhereTheyAreSeen) {
  Expr x = load(DType::f32), y = load(DType::f32);
  EXPECT_TRUE(same_value(x + y, y + x));
  EXPECT_FALSE(same_value(x - y, y - x));
  Expr again{&builder, builder.load(0, Index::dim(0) * 3 + Index::dim(1))};
  EXPECT_TRUE(same_value(x, again));
  Val sum = builder.reduce(Reduction::sum, x.value);
  EXPECT_THROW(builder.op(Op::neg, sum), InternalError);
  builder.begin_stage(true);
  EXPECT_THROW(builder.op(Op::neg, x.value), InternalError);
  again = {&builder, builder.load(0, Index::dim(0) * 3 + Index::dim(1))};
  EXPECT_FALSE(same_value(x, again));
  Val negative = builder.op(Op::neg, sum);
  builder.begin_stage(false);
  EXPECT_NE(builder.op(Op::neg, sum), negative);
  kernel.verify();
}

TEST_F(BuilderTest, ReadsWrittenMemoryAgain) {
  Expr x = load(DType::f32);
  int32_t buffer = builder.add_buffer(DType::f32, Buffer::Kind::updated, 12);
  Index at = Index::dim(0) * 3 + Index::dim(1);
  Val before = builder.load(buffer, at);
  EXPECT_EQ(builder.load(buffer, at), before);
  builder.store(buffer, at, x.value);
  Val after = builder.load(buffer, at);
  EXPECT_NE(after, before);
  EXPECT_EQ(builder.load(buffer, at), after);
}

TEST_F(BuilderTest, KeepsPositionsAsIndices) {
  Expr i{&builder, builder.index(Index::dim(1))};
  Expr j = i * 2.0 + 1.0 - i;
  EXPECT_EQ(inst(j).op, Op::index);
  EXPECT_EQ(builder.as_index(j.value).str(), "1 + i1");
  // It is in range, so nothing needs to be checked.
  EXPECT_EQ(builder.check(j.value, 4), j.value);
  EXPECT_NE(builder.check(j.value, 3), j.value);
  Expr k = load(DType::i32);
  Val checked = builder.check(k.value, 5);
  EXPECT_EQ(builder.as_index(checked), Index::value(checked));
  EXPECT_TRUE(is_constant(Expr{&builder, builder.index(7)}, 7));
}

TEST_F(BuilderTest, RefusesMisuse) {
  Expr x = load(DType::f32), d = load(DType::f64), i = load(DType::i32), h = load(DType::f16);
  Expr c = load(DType::b8);
  EXPECT_THROW(x + d, InternalError);
  EXPECT_THROW(exp(i), InternalError);
  EXPECT_THROW(h + h, InternalError);
  EXPECT_THROW(x & x, InternalError);
  EXPECT_THROW(c - c, InternalError);
  EXPECT_THROW(!x, InternalError);
  EXPECT_THROW(i + 0.5, InternalError);
  EXPECT_THROW(select(x, x, x), InternalError);
  EXPECT_THROW(builder.op(Op::add, x.value), InternalError);
  EXPECT_THROW(builder.op(Op::cast, x.value), InternalError);
  EXPECT_THROW(builder.reduce(Reduction::any, x.value), InternalError);
  EXPECT_THROW(builder.load(99, 0), InternalError);
  EXPECT_THROW(builder.load(0, Index::dim(2)), InternalError);
  EXPECT_THROW(builder.store(0, 0, x.value), InternalError);
  EXPECT_THROW(x.to(DType::c64), InternalError);
  builder.begin_stage(false);
  EXPECT_THROW(builder.load(0, Index::dim(1)), InternalError);
  EXPECT_THROW(builder.reduce(Reduction::sum, builder.constant(DType::f32, 1.0)), InternalError);
}

}  // namespace
}  // namespace smelt::loops
