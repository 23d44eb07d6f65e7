// The interpreter against values worked out by hand.
#include "loops/interpret.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "loops/philox.h"
#include "loops/scalar.h"

namespace smelt::loops {
namespace {

template <class... Vectors>
bool run(const std::string& text, Vectors&... buffers) {
  Kernel kernel = Kernel::parse(text);
  kernel.verify();
  std::vector<void*> pointers = {buffers.data()...};
  for (size_t i = pointers.size(); i < kernel.buffers.size(); ++i) pointers.push_back(nullptr);
  return interpret(kernel, {pointers, {}, {}});
}

TEST(Interpret, Softmax) {
  std::vector<float> in = {0, 1, 2, 5, 5, 5}, out(6);
  EXPECT_TRUE(
      run("kernel \"softmax\" outer [2] inner [3]\n"
          "b0: f32[6] input\nb1: f32[6] output\nb2: f32[3] scratch\n"
          "inner stage\n  v0: f32 = load b0[3*i0 + i1]\n  v1: f32 = reduce max v0\n"
          "inner stage\n  v2: f32 = load b0[3*i0 + i1]\n  v3: f32 = sub v2, v1\n"
          "  v4: f32 = exp v3\n  store b2[i1] = v4\n  v6: f32 = reduce sum v4\n"
          "inner stage\n  v7: f32 = load b2[i1]\n  v8: f32 = div v7, v6\n"
          "  store b1[3*i0 + i1] = v8\nend\n",
          in, out));
  float sum = std::exp(-2.0f) + std::exp(-1.0f) + 1;
  EXPECT_FLOAT_EQ(out[0], std::exp(-2.0f) / sum);
  EXPECT_FLOAT_EQ(out[2], 1 / sum);
  EXPECT_FLOAT_EQ(out[4], 1.0f / 3);
}

// Of the paper's own test vectors.
TEST(Interpret, Philox) {
  using Words = std::array<uint32_t, 4>;
  EXPECT_EQ(philox(0, 0, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(~0ull, ~0ull, ~0ull), (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox(0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Interpret, RandomNumbers) {
  std::vector<int64_t> bits(8);
  std::vector<float> normal(8);
  EXPECT_TRUE(
      run("kernel \"draws\" outer [8] inner []\nb0: i64[8] output\nb1: f32[8] output\n"
          "outer stage\n  v0: i64 = constant 7\n  v1: i64 = constant 3\n  v2: i64 = index i0\n"
          "  v3: i64 = random_bits v0, v1, v2\n  store b0[i0] = v3\n"
          "  v5: f32 = random_normal v0, v1, v2\n  store b1[i0] = v5\nend\n",
          bits, normal));
  for (uint64_t i = 0; i < 8; ++i) {
    EXPECT_EQ(bits[i], philox_word(7, 3, i));
    const double u = (philox_word(7, 3, i / 2 * 2) + 0.5) * 0x1p-32;
    const double v = (philox_word(7, 3, i / 2 * 2 + 1) + 0.5) * 0x1p-32 * 6.283185307179586;
    const double radius = std::sqrt(-2 * std::log(u));
    EXPECT_FLOAT_EQ(normal[i], static_cast<float>(radius * (i % 2 ? std::cos(v) : std::sin(v))));
  }
}

TEST(Interpret, ReductionsWithNaNAndOfNothing) {
  auto text = [](const std::string& inner, const std::string& reduction, const std::string& type) {
    return "kernel \"r\" outer [] inner [" + inner + "]\nb0: f32[4] input\nb1: " + type +
           "[1] output\ninner stage\n  v0: f32 = load b0[i0]\n  v1: " + type + " = reduce " +
           reduction + " v0\nouter stage\n  store b1[0] = v1\nend\n";
  };
  std::vector<float> in = {3, NAN, -1, NAN}, out(1);
  std::vector<int64_t> place(1);
  run(text("1", "min", "f32"), in, out);
  EXPECT_EQ(out[0], 3);
  run(text("3", "min", "f32"), in, out);
  EXPECT_TRUE(std::isnan(out[0]));
  run(text("4", "argmax", "i64"), in, place);
  EXPECT_EQ(place[0], 1);
  in = {2, 5, -1, 5};
  run(text("4", "argmax", "i64"), in, place);
  EXPECT_EQ(place[0], 1);
  run(text("4", "argmin", "i64"), in, place);
  EXPECT_EQ(place[0], 2);
  run(text("4", "product", "f32"), in, out);
  EXPECT_EQ(out[0], -50);
  run(text("0", "sum", "f32"), in, out);
  EXPECT_EQ(out[0], 0);
  run(text("0", "product", "f32"), in, out);
  EXPECT_EQ(out[0], 1);
  run(text("0", "max", "f32"), in, out);
  EXPECT_EQ(out[0], -INFINITY);
  run(text("0", "argmax", "i64"), in, place);
  EXPECT_EQ(place[0], 0);
}

TEST(Interpret, GathersAndReportsWhatIsOutOfBounds) {
  std::string text =
      "kernel \"g\" outer [3] inner []\nb0: i64[3] input\nb1: f32[4] input\nb2: f32[3] output\n"
      "outer stage\n  v0: i64 = load b0[i0]\n  v1: i64 = check v0 below 4\n"
      "  v2: f32 = load b1[v1]\n  store b2[i0] = v2\nend\n";
  std::vector<int64_t> ids = {3, 0, 2};
  std::vector<float> table = {10, 11, 12, 13}, out(3);
  EXPECT_TRUE(run(text, ids, table, out));
  EXPECT_EQ(out, (std::vector<float>{13, 10, 12}));
  ids[1] = 4;
  EXPECT_FALSE(run(text, ids, table, out));
  EXPECT_EQ(out, (std::vector<float>{13, 10, 12}));
  ids[1] = -1;
  EXPECT_FALSE(run(text, ids, table, out));
}

TEST(Interpret, AccumulatesInOrder) {
  std::vector<uint8_t> ids = {1, 0, 1, 1};
  std::vector<uint16_t> sums = {f16_bits(0.5f), f16_bits(2048)};
  EXPECT_TRUE(
      run("kernel \"a\" outer [4] inner [] ordered\nb0: u8[4] input\nb1: f16[2] updated\n"
          "outer stage\n  v0: u8 = load b0[i0]\n  v1: i64 = cast v0\n"
          "  v2: i64 = check v1 below 2\n  v3: f32 = constant 1\n  v4: f16 = cast v3\n"
          "  accumulate b1[v2] = v4\nend\n",
          ids, sums));
  EXPECT_EQ(from_f16_bits(sums[0]), 1.5f);
  EXPECT_EQ(from_f16_bits(sums[1]), 2048);  // each 2049 is a tie, to even
}

TEST(Interpret, TakesParamsAndSizes) {
  Kernel kernel = Kernel::parse(
      "kernel \"p\" outer [s0] inner [] params 2\nb0: f32[2*s0] output\nouter stage\n"
      "  v0: f32 = param 0\n  v1: i64 = param 1\n  v2: f32 = cast v1\n  v3: f32 = add v0, v2\n"
      "  store b0[(s0-1) + i0] = v3\nend\n");
  EXPECT_EQ(str(size_params(kernel)), "[s0, s0-1]");
  std::vector<float> out(6);
  std::vector<void*> buffers = {out.data()};
  std::vector<int64_t> symbols = {3};
  std::vector<int64_t> sizes = evaluate(size_params(kernel), symbols);
  std::vector<uint64_t> params = {std::bit_cast<uint64_t>(1.5), static_cast<uint64_t>(-4)};
  EXPECT_TRUE(interpret(kernel, {buffers, sizes, params}));
  EXPECT_EQ(out, (std::vector<float>{0, 0, -2.5, -2.5, -2.5, 0}));
}

TEST(Interpret, NoticesAnIndexThatLeavesItsBuffer) {
  std::vector<float> buffer(4);
  EXPECT_THROW(run("kernel \"b\" outer [4] inner []\nb0: f32[4] output\nouter stage\n"
                   "  v0: i64 = index 2*i0\n  v1: f32 = constant 1\n  store b0[v0] = v1\nend\n",
                   buffer),
               InternalError);
}

int64_t integers(Op op, DType dtype, int64_t a, int64_t b) {
  return compute(op, dtype, {0, a}, {0, b})->integer;
}
double numbers(Op op, DType dtype, double a, double b = 0) {
  return compute(op, dtype, {a, 0}, {b, 0})->number;
}

TEST(Scalar, IntegersWrapAround) {
  EXPECT_EQ(integers(Op::add, DType::i8, 127, 1), -128);
  EXPECT_EQ(integers(Op::sub, DType::u8, 0, 1), 255);
  EXPECT_EQ(integers(Op::mul, DType::i16, 300, 300), 24464);
  EXPECT_EQ(integers(Op::neg, DType::i32, INT32_MIN, 0), INT32_MIN);
  EXPECT_EQ(integers(Op::abs, DType::i64, INT64_MIN, 0), INT64_MIN);
  EXPECT_EQ(integers(Op::bit_not, DType::u8, 1, 0), 254);
}

TEST(Scalar, IntegersDivideTowardsZeroAndReportZero) {
  EXPECT_EQ(integers(Op::div, DType::i32, -7, 2), -3);
  EXPECT_EQ(integers(Op::mod, DType::i32, -7, 2), -1);
  EXPECT_EQ(integers(Op::div, DType::i64, INT64_MIN, -1), INT64_MIN);
  EXPECT_EQ(integers(Op::mod, DType::i64, INT64_MIN, -1), 0);
  EXPECT_EQ(integers(Op::div, DType::i8, -128, -1), -128);
  EXPECT_FALSE(compute(Op::div, DType::i32, {0, 1}, {0, 0}));
  EXPECT_FALSE(compute(Op::mod, DType::i32, {0, 1}, {0, 0}));
}

TEST(Scalar, Shifts) {
  EXPECT_EQ(integers(Op::shift_left, DType::i8, 1, 7), -128);
  EXPECT_EQ(integers(Op::shift_left, DType::i32, 1, 32), 0);
  EXPECT_EQ(integers(Op::shift_left, DType::i32, 1, -1), 0);
  EXPECT_EQ(integers(Op::shift_right, DType::i32, -8, 1), -4);
  EXPECT_EQ(integers(Op::shift_right, DType::i32, -8, 40), -1);
  EXPECT_EQ(integers(Op::shift_right, DType::u8, 200, 3), 25);
}

TEST(Scalar, BooleansAddAsOr) {
  EXPECT_EQ(integers(Op::add, DType::b8, 1, 1), 1);
  EXPECT_EQ(integers(Op::mul, DType::b8, 1, 0), 0);
  EXPECT_EQ(integers(Op::bit_not, DType::b8, 1, 0), 0);
  EXPECT_EQ(integers(Op::lt, DType::b8, 0, 1), 1);
}

TEST(Scalar, FloatingFollowsIEEE) {
  EXPECT_TRUE(std::isnan(numbers(Op::min, DType::f32, NAN, 1)));
  EXPECT_TRUE(std::isnan(numbers(Op::max, DType::f32, 1, NAN)));
  for (const Op op : {Op::min, Op::max}) {
    EXPECT_FALSE(std::signbit(numbers(op, DType::f32, 0.0, -0.0)));
    EXPECT_TRUE(std::signbit(numbers(op, DType::f32, -0.0, 0.0)));
  }
  EXPECT_EQ(compute(Op::ne, DType::f32, {NAN, 0}, {NAN, 0})->integer, 1);
  EXPECT_EQ(compute(Op::le, DType::f32, {NAN, 0}, {NAN, 0})->integer, 0);
  EXPECT_EQ(numbers(Op::round, DType::f64, 2.5), 2);
  EXPECT_EQ(numbers(Op::round, DType::f64, -1.5), -2);
  EXPECT_EQ(numbers(Op::mod, DType::f64, -7, 2), -1);
  EXPECT_EQ(numbers(Op::add, DType::f32, 16777216, 1), 16777216);
  EXPECT_EQ(numbers(Op::div, DType::f32, 1, 0), INFINITY);
  EXPECT_EQ(numbers(Op::sigmoid, DType::f32, 0), 0.5);
}

TEST(Scalar, Casts) {
  auto to = [](double number, DType dtype) {
    return convert({number, 0}, DType::f64, dtype).integer;
  };
  EXPECT_EQ(to(-2.9, DType::i32), -2);
  EXPECT_EQ(to(-1.0, DType::u8), 255);
  EXPECT_EQ(to(NAN, DType::b8), 1);
  EXPECT_EQ(to(0.25, DType::b8), 1);
  EXPECT_EQ(to(-0.0, DType::b8), 0);
  EXPECT_EQ(convert({0, 300}, DType::i64, DType::u8).integer, 44);
  EXPECT_EQ(convert({0, 16777217}, DType::i64, DType::f32).number, 16777216);
}

TEST(Scalar, HalfPrecision) {
  EXPECT_EQ(f16_bits(1.0f), 0x3c00);
  EXPECT_EQ(f16_bits(-2.0f), 0xc000);
  EXPECT_EQ(f16_bits(65504.0f), 0x7bff);
  EXPECT_EQ(f16_bits(65520.0f), 0x7c00);
  EXPECT_EQ(f16_bits(0x1p-24f), 0x0001);
  EXPECT_EQ(f16_bits(0x1p-25f), 0x0000);
  EXPECT_EQ(f16_bits(0x1.8p-25f), 0x0001);
  EXPECT_EQ(f16_bits(0x1.ff8p-15f), 0x03ff);
  EXPECT_EQ(f16_bits(0x1.ffcp-15f), 0x0400);
  EXPECT_EQ(bf16_bits(1.0f), 0x3f80);
  EXPECT_EQ(bf16_bits(std::bit_cast<float>(0x3f808000)), 0x3f80);
  EXPECT_EQ(bf16_bits(std::bit_cast<float>(0x3f818000)), 0x3f82);
  EXPECT_EQ(bf16_bits(std::numeric_limits<float>::max()), 0x7f80);
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    auto half = static_cast<uint16_t>(bits);
    if (!std::isnan(from_f16_bits(half))) {
      ASSERT_EQ(f16_bits(from_f16_bits(half)), half);
    }
    if (!std::isnan(from_bf16_bits(half))) {
      ASSERT_EQ(bf16_bits(from_bf16_bits(half)), half);
    }
  }
}

}  // namespace
}  // namespace smelt::loops
