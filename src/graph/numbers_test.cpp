#include "graph/numbers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "graph/graph.h"

namespace smelt {
namespace {

constexpr const char* kText = R"(graph {
  input %0: f32[2] = argument 0
  input %1: f64[] number = argument 1
  input %2: i64[] number = argument 2
  %3: f64[] number = smelt::number("mul", %1, 2.0)
  %4: b8[] number = smelt::number("eq", %2, 1)
  smelt::expect(%4, false) effect
  smelt::fits(%3, f32) effect
  %5: f32[2] = aten::add.Tensor(%0, %0, %3)
  %6: f64[] number = smelt::item(%5)
  %7: f32[2] = aten::mul.Tensor(%5, %6)
  return (%7)
}
)";

std::string with_line(const std::string& line) {
  return "graph {\n  input %0: f32[2] = argument 0\n  input %1: f64[] number = argument 1\n  "
         "input %2: i64[] number = argument 2\n  " +
         line + "\n  return (%0)\n}\n";
}

std::string complaint(const std::string& line) {
  try {
    Graph::parse(with_line(line)).verify();
  } catch (const InternalError& error) {
    const std::string message = error.what();
    return message.substr(message.find("': ") + 3);
  }
  return "";
}

TEST(Numbers, ArePrintedParsedVerifiedAndHashed) {
  const Graph graph = Graph::parse(kText);
  graph.verify();
  EXPECT_EQ(graph.str(), kText);
  // A 0-dim tensor is another thing than a number.
  std::string plain = kText;
  plain.replace(plain.find(" number = argument 1"), 7, "");
  EXPECT_NE(graph.hash(), Graph::parse(plain).hash());
}

TEST(Numbers, AreOfThreeTypes) {
  EXPECT_EQ(complaint("%3: f32[] number = smelt::item(%0)"),
            "%3 is a number, and not of f64, i64 or b8 without dimensions on the CPU");
  EXPECT_EQ(complaint("%3: f64[1] number = smelt::item(%0)"),
            "%3 is a number, and not of f64, i64 or b8 without dimensions on the CPU");
  EXPECT_EQ(complaint("%3: f64[] = smelt::item(%0)"), "its result is a number");
  EXPECT_EQ(complaint("%3: f64[] number = aten::neg(%1)"), "its result is no number");
}

TEST(Numbers, HaveOpsOfTheirOwn) {
  EXPECT_EQ(complaint("%3: f64[] number = smelt::number(\"add\", %1, %2)"), "");
  EXPECT_EQ(complaint("%3: f64[] number = smelt::number(\"neg\", %1)"), "");
  EXPECT_EQ(complaint("%3: f64[] number = smelt::number(\"nothing\", %1, %2)"),
            "there is no such op on numbers");
  EXPECT_EQ(complaint("%3: i64[] number = smelt::number(\"add\", %1, %2)"),
            "its result is of another type");
  EXPECT_EQ(complaint("%3: f64[] number = smelt::number(\"add\", %1)"), "it takes 3 arguments");
  EXPECT_EQ(complaint("%3: f64[] number = smelt::number(\"add\", %1, %0)"),
            "an operand is no number");
  EXPECT_EQ(complaint("smelt::expect(%0, true) effect"), "it takes a number");
  EXPECT_EQ(complaint("smelt::expect(%1, true)"), "its traits are not those of its op");
  EXPECT_EQ(complaint("smelt::fits(%1, 3) effect"), "the second argument is a dtype");
}

TEST(Numbers, HaveTheTypesOfPython) {
  using numbers::Operand;
  const Operand real{DType::f64, {}}, integer{DType::i64, {}}, truth{DType::b8, {}};
  const auto literal = [](Number number) { return Operand{numbers::dtype_of(number), number}; };
  EXPECT_EQ(numbers::result_of(NumberOp::add, integer, truth), DType::i64);
  EXPECT_EQ(numbers::result_of(NumberOp::add, truth, truth), DType::i64);
  EXPECT_EQ(numbers::result_of(NumberOp::mod, integer, real), DType::f64);
  EXPECT_EQ(numbers::result_of(NumberOp::div, integer, integer), DType::f64);
  EXPECT_EQ(numbers::result_of(NumberOp::lt, integer, real), DType::b8);
  EXPECT_EQ(numbers::result_of(NumberOp::neg, truth, truth), DType::i64);
  EXPECT_EQ(numbers::result_of(NumberOp::pow, real, integer), DType::f64);
  EXPECT_EQ(numbers::result_of(NumberOp::pow, integer, literal(int64_t{2})), DType::i64);
  EXPECT_EQ(numbers::result_of(NumberOp::pow, integer, literal(int64_t{-2})), DType::f64);
  // Which one it is depends on what they are.
  EXPECT_EQ(numbers::result_of(NumberOp::pow, integer, integer), std::nullopt);
  EXPECT_EQ(numbers::result_of(NumberOp::max, integer, real), std::nullopt);
  EXPECT_EQ(numbers::result_of(NumberOp::max, real, real), DType::f64);
}

TEST(Numbers, FitDTypes) {
  EXPECT_TRUE(numbers::fits(70000.0, DType::f32));
  EXPECT_FALSE(numbers::fits(70000.0, DType::f16));
  EXPECT_FALSE(numbers::fits(1e39, DType::f32));
  EXPECT_TRUE(numbers::fits(1e300, DType::f64));
  EXPECT_TRUE(numbers::fits(std::numeric_limits<double>::infinity(), DType::f16));
  EXPECT_TRUE(numbers::fits(std::nan(""), DType::f32));
  EXPECT_FALSE(numbers::fits(std::nan(""), DType::i64));
  EXPECT_FALSE(numbers::fits(0x1p63, DType::i64));
  EXPECT_TRUE(numbers::fits(-0x1p63, DType::i64));
  EXPECT_TRUE(numbers::fits(255.9, DType::u8));
  EXPECT_FALSE(numbers::fits(int64_t{256}, DType::u8));
  EXPECT_TRUE(numbers::fits(int64_t{256}, DType::b8));
  EXPECT_TRUE(numbers::fits(true, DType::i8));
  EXPECT_FALSE(numbers::may_not_fit(DType::i64, DType::f32));
  EXPECT_TRUE(numbers::may_not_fit(DType::i64, DType::f16));
  EXPECT_TRUE(numbers::may_not_fit(DType::f64, DType::f32));
  EXPECT_FALSE(numbers::may_not_fit(DType::f64, DType::f64));
}

}  // namespace
}  // namespace smelt
