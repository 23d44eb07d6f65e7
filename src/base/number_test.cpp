#include "base/number.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace smelt {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

Number of(NumberOp op, Number a, Number b = false) {
  const auto result = compute(op, a, b);
  EXPECT_TRUE(result.has_value()) << name_of(op) << " " << str(a) << " " << str(b);
  return result.value_or(Number(false));
}

TEST(Number, KeepsPythonsTypes) {
  EXPECT_EQ(of(NumberOp::add, int64_t{2}, int64_t{3}), Number(int64_t{5}));
  EXPECT_EQ(of(NumberOp::add, int64_t{2}, 0.5), Number(2.5));
  EXPECT_EQ(of(NumberOp::add, true, true), Number(int64_t{2}));
  EXPECT_EQ(of(NumberOp::div, int64_t{4}, int64_t{2}), Number(2.0));
  EXPECT_EQ(of(NumberOp::pow, int64_t{2}, int64_t{10}), Number(int64_t{1024}));
  EXPECT_EQ(of(NumberOp::pow, int64_t{2}, int64_t{-1}), Number(0.5));
  EXPECT_EQ(of(NumberOp::lt, int64_t{1}, 1.5), Number(true));
  EXPECT_EQ(of(NumberOp::as_int, -2.75), Number(int64_t{-2}));
}

TEST(Number, RoundsDownAsPythonDoes) {
  EXPECT_EQ(of(NumberOp::floor_div, int64_t{-7}, int64_t{2}), Number(int64_t{-4}));
  EXPECT_EQ(of(NumberOp::mod, int64_t{-7}, int64_t{2}), Number(int64_t{1}));
  EXPECT_EQ(of(NumberOp::mod, int64_t{7}, int64_t{-2}), Number(int64_t{-1}));
  EXPECT_EQ(of(NumberOp::floor_div, -7.5, 2.0), Number(-4.0));
  EXPECT_EQ(of(NumberOp::mod, -7.5, 2.0), Number(0.5));
  EXPECT_EQ(of(NumberOp::mod, 7.5, -2.0), Number(-0.5));
}

TEST(Number, TakesTheFirstOfEqualOnes) {
  EXPECT_EQ(of(NumberOp::max, int64_t{1}, 1.0), Number(int64_t{1}));
  EXPECT_EQ(of(NumberOp::min, 1.0, int64_t{1}), Number(1.0));
  EXPECT_EQ(of(NumberOp::max, 2.0, std::nan("")), Number(2.0));
  EXPECT_TRUE(std::isnan(to_double(of(NumberOp::max, std::nan(""), 2.0))));
}

TEST(Number, LeavesExceptionsToPython) {
  EXPECT_FALSE(compute(NumberOp::div, 1.0, 0.0));
  EXPECT_FALSE(compute(NumberOp::mod, int64_t{1}, int64_t{0}));
  EXPECT_FALSE(compute(NumberOp::pow, 0.0, -1.0));
  EXPECT_FALSE(compute(NumberOp::pow, -2.0, 0.5));
  EXPECT_FALSE(compute(NumberOp::pow, 10.0, 400.0));
  EXPECT_FALSE(compute(NumberOp::mul, std::numeric_limits<int64_t>::max(), int64_t{2}));
  EXPECT_FALSE(compute(NumberOp::as_int, kInf));
  EXPECT_FALSE(compute(NumberOp::lt, std::numeric_limits<int64_t>::max(), 1.0));
  EXPECT_EQ(of(NumberOp::pow, kInf, 2.0), Number(kInf));
}

TEST(Number, NamesAreReadBack) {
  for (int i = 0; i <= static_cast<int>(NumberOp::as_int); ++i) {
    const auto op = static_cast<NumberOp>(i);
    EXPECT_EQ(parse_number_op(name_of(op)), op);
  }
}

}  // namespace
}  // namespace smelt
