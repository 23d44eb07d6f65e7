#include "ops/meaning.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "ops/run_node_test.h"

namespace smelt {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

// NaN is NaN here.
void expect_equal(const Numbers& got, const Numbers& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_TRUE(got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i])))
        << "element " << i << ": " << got[i] << ", not " << want[i];
  }
}

std::string refusal(const std::vector<std::string>& types, std::string_view line,
                    std::string_view symbols = "") {
  const Graph graph = graph_of(types, line, symbols);
  return can_lower(graph, graph.nodes[0]).reason();
}

TEST(Meaning, IsFoundByName) {
  EXPECT_NE(find_meaning(OpName("aten::add.Tensor")), nullptr);
  EXPECT_EQ(find_meaning(OpName("aten::no_such_op")), nullptr);
  EXPECT_GT(all_meanings().size(), 250u);
}

TEST(Meaning, BroadcastsOperands) {
  expect_equal(run_line({{"f32[2, 3]", {1, 2, 3, 4, 5, 6}}, {"f32[2, 1]", {10, 20}}},
                        "%2: f32[2, 3] = aten::add.Tensor(%0, %1, 2)"),
               {21, 22, 23, 44, 45, 46});
  expect_equal(run_line({{"f32[2, 3]{1, 2}", {1, 4, 2, 5, 3, 6}}, {"f32[]", {2}}},
                        "%2: f32[2, 3] = aten::mul.Tensor(%0, %1)"),
               {2, 4, 6, 8, 10, 12});
}

TEST(Meaning, RoundsHalvesOnce) {
  // 0.1 as a bf16 is larger, and would give 0.10107421875.
  expect_equal(run_line({{"bf16[2]", {1.0078125, 3}}}, "%1: bf16[2] = aten::mul.Tensor(%0, 0.1)"),
               {0.1005859375, 0.30078125});
  // A number beside bf16 is one when it is compared.
  expect_equal(run_line({{"bf16[1]", {0.10009765625}}}, "%1: b8[1] = aten::gt.Scalar(%0, 0.1)"),
               {0});
  expect_equal(run_line({{"bf16[1]", {0.10009765625}}}, "%1: b8[1] = aten::eq.Scalar(%0, 0.1)"),
               {1});
  // An integer is rounded to bf16 before it is added.
  expect_equal(
      run_line({{"bf16[1]", {1}}, {"i64[1]", {257}}}, "%2: bf16[1] = aten::sub.Tensor(%1, %0, 1)"),
      {255});
}

TEST(Meaning, TakesNumbersThatAreNotKnown) {
  // As the same lines with the numbers in them.
  expect_equal(run_line({{"bf16[2]", {1.0078125, 3}}, {"f64[] number", {0.1}}},
                        "%2: bf16[2] = aten::mul.Tensor(%0, %1)"),
               {0.1005859375, 0.30078125});
  expect_equal(run_line({{"bf16[1]", {0.10009765625}}, {"f64[] number", {0.1}}},
                        "%2: b8[1] = aten::eq.Scalar(%0, %1)"),
               {1});
  expect_equal(run_line({{"i64[3]", {1, 2, 3}}, {"i64[] number", {2}}},
                        "%2: f32[3] = aten::div.Tensor(%0, %1)"),
               {0.5, 1, 1.5});
  expect_equal(run_line({{"f32[2]", {1, 2}}, {"f64[] number", {0.5}}},
                        "%2: f32[2] = aten::add.Tensor(%0, %0, %1)"),
               {1.5, 3});
  expect_equal(run_line({{"f32[3]", {4, -0.0, 2}}, {"f64[] number", {0.5}}},
                        "%2: f32[3] = aten::pow.Tensor_Scalar(%0, %1)"),
               {2, -0.0, std::sqrt(2.0f)});
  expect_equal(run_line({{"f32[2]", {-1, 2}}, {"f64[] number", {0.25}}},
                        "%2: f32[2] = aten::leaky_relu(%0, %1)"),
               {-0.25, 2});
  expect_equal(run_line({{"f64[] number", {2.75}}},
                        "%1: i64[2] = aten::full([2], %0, i64, none, cpu, false)"),
               {2, 2});
}

TEST(Meaning, RefusesNumbersWhoseValueItNeeds) {
  const auto refusal = [](const std::string& line) {
    const Graph graph = graph_of({"f32[2]", "f64[] number", "i64[2]", "i64[] number"}, line);
    const Decision made = can_lower(graph, graph.nodes[0]);
    return made ? std::string() : made.reason();
  };
  EXPECT_EQ(refusal("%4: f32[2] = aten::mul.Tensor(%0, %1)"), "");
  EXPECT_NE(refusal("%4: f32[2] = aten::celu(%0, %1)"), "");
  EXPECT_NE(refusal("%4: f32[2] = aten::softshrink(%0, %1)"), "");
  // PyTorch raises an error for a negative one.
  EXPECT_NE(refusal("%4: i64[2] = aten::pow.Tensor_Scalar(%2, %3)"), "");
  EXPECT_NE(refusal("%4: f32[2] = aten::leaky_relu_backward(%0, %0, %1, true)"), "");
  EXPECT_EQ(refusal("%4: f32[2] = aten::leaky_relu_backward(%0, %0, %1, false)"), "");
}

TEST(Meaning, PromotesNumbers) {
  expect_equal(run_line({{"i64[3]", {0, 1, 2}}}, "%1: b8[3] = aten::gt.Scalar(%0, 0.5)"),
               {0, 1, 1});
  expect_equal(run_line({{"i64[3]", {1, 2, 3}}}, "%1: f32[3] = aten::div.Tensor(%0, 2)"),
               {0.5, 1, 1.5});
  expect_equal(run_line({{"b8[2]", {0, 1}}}, "%1: i64[2] = aten::add.Tensor(%0, 3, 1)"), {3, 4});
  expect_equal(run_line({{"b8[4]", {0, 1, 0, 1}}, {"b8[4]", {0, 0, 1, 1}}},
                        "%2: b8[4] = aten::add.Tensor(%0, %1, 1)"),
               {0, 1, 1, 1});
}

TEST(Meaning, DividesAsPython) {
  const InputNumbers a{"i64[4]", {7, -7, 7, -7}}, b{"i64[4]", {2, 2, -2, -2}};
  expect_equal(run_line({a, b}, "%2: i64[4] = aten::floor_divide(%0, %1)"), {3, -4, -4, 3});
  expect_equal(run_line({a, b}, "%2: i64[4] = aten::div.Tensor_mode(%0, %1, \"trunc\")"),
               {3, -3, -3, 3});
  expect_equal(run_line({a, b}, "%2: i64[4] = aten::remainder.Tensor(%0, %1)"), {1, 1, -1, -1});
  expect_equal(run_line({a, b}, "%2: i64[4] = aten::fmod.Tensor(%0, %1)"), {1, -1, 1, -1});
  expect_equal(run_line({{"f64[4]", {7, -7, 1, kInf}}, {"f64[4]", {2, 2, 0, 2}}},
                        "%2: f64[4] = aten::floor_divide(%0, %1)"),
               {3, -4, kInf, kNan});
  EXPECT_THROW(
      run_line({{"i64[1]", {7}}, {"i64[1]", {0}}}, "%2: i64[1] = aten::floor_divide(%0, %1)"),
      Error);
}

TEST(Meaning, PassesNanOn) {
  const InputNumbers x{"f32[3]", {kNan, -2, 3}};
  expect_equal(run_line({x}, "%1: f32[3] = aten::relu(%0)"), {kNan, 0, 3});
  expect_equal(run_line({x}, "%1: f32[3] = aten::clamp(%0, -1, 1)"), {kNan, -1, 1});
  expect_equal(run_line({x}, "%1: f32[3] = aten::sign(%0)"), {0, -1, 1});
  expect_equal(run_line({x, {"f32[3]", {1, kNan, 2}}}, "%2: f32[3] = aten::maximum(%0, %1)"),
               {kNan, kNan, 3});
  expect_equal(run_line({x, {"f32[3]", {1, kNan, 2}}}, "%2: f32[3] = aten::fmax(%0, %1)"),
               {1, -2, 3});
  expect_equal(run_line({x}, "%1: f32[3] = aten::threshold_backward(%0, %0, 0)"), {kNan, 0, 3});
  expect_equal(run_line({x}, "%1: f32[] = aten::max(%0) loose"), {kNan});
  expect_equal(run_line({x}, "%1: i64[] = aten::argmax(%0, none, false)"), {0});
}

TEST(Meaning, RoundsToEven) {
  expect_equal(run_line({{"f32[4]", {0.5, 1.5, 2.5, -0.5}}}, "%1: f32[4] = aten::round(%0)"),
               {0, 2, 2, 0});
  expect_equal(run_line({{"f64[2]", {1.25, 135}}}, "%1: f64[2] = aten::round.decimals(%0, 1)"),
               {1.2, 135});
}

TEST(Meaning, KnowsPowers) {
  const InputNumbers x{"f64[3]", {4, 2, -3}};
  expect_equal(run_line({x}, "%1: f64[3] = aten::pow.Tensor_Scalar(%0, 3)"), {64, 8, -27});
  expect_equal(run_line({x}, "%1: f64[3] = aten::pow.Tensor_Scalar(%0, 0.5)"),
               {2, std::sqrt(2.0), kNan});
  expect_equal(run_line({x}, "%1: f64[3] = aten::pow.Tensor_Scalar(%0, -1)"),
               {0.25, 0.5, -1.0 / 3});
  expect_equal(run_line({{"i64[2]", {3, -2}}}, "%1: i64[2] = aten::pow.Tensor_Scalar(%0, 5)"),
               {243, -32});
}

TEST(Meaning, ReshapesAndMoves) {
  const InputNumbers x{"i64[2, 3]", {0, 1, 2, 3, 4, 5}};
  expect_equal(run_line({x}, "%1: i64[3, 2] = aten::view(%0, [3, 2])"), {0, 1, 2, 3, 4, 5});
  expect_equal(run_line({x}, "%1: i64[3, 2] = aten::permute_copy(%0, [1, 0])"), {0, 3, 1, 4, 2, 5});
  expect_equal(run_line({x}, "%1: i64[2, 2] = aten::slice_copy.Tensor(%0, 1, -2, none, 1)"),
               {1, 2, 4, 5});
  expect_equal(run_line({x}, "%1: i64[2, 3] = aten::flip(%0, [1])"), {2, 1, 0, 5, 4, 3});
  expect_equal(run_line({x}, "%1: i64[2, 3] = aten::roll(%0, [1], [1])"), {2, 0, 1, 5, 3, 4});
  expect_equal(run_line({x}, "%1: i64[2] = aten::diagonal_copy(%0, 1, 0, 1)"), {1, 5});
}

TEST(Meaning, GathersAndChecksIndices) {
  const InputNumbers x{"f32[3, 2]", {1, 2, 3, 4, 5, 6}};
  expect_equal(run_line({x, {"i64[2]", {2, 0}}},
                        "%2: f32[2, 2] = aten::embedding(%0, %1, -1, false, false)"),
               {5, 6, 1, 2});
  expect_equal(run_line({x, {"i64[2]", {-1, 0}}}, "%2: f32[2, 2] = aten::index.Tensor(%0, [%1])"),
               {5, 6, 1, 2});
  expect_equal(
      run_line({x, {"i64[2]", {1, 0}}}, "%2: f32[3, 2] = aten::index.Tensor(%0, [none, %1])"),
      {2, 1, 4, 3, 6, 5});
  EXPECT_THROW(run_line({x, {"i64[1]", {3}}}, "%2: f32[1, 2] = aten::index.Tensor(%0, [%1])"),
               Error);
  EXPECT_THROW(
      run_line({x, {"i64[1]", {-1}}}, "%2: f32[1, 2] = aten::embedding(%0, %1, -1, false, false)"),
      Error);
}

TEST(Meaning, JoinsAndPads) {
  expect_equal(run_line({{"f32[2, 1]", {1, 2}}, {"f32[2, 2]", {3, 4, 5, 6}}},
                        "%2: f32[2, 3] = aten::cat([%0, %1], 1)"),
               {1, 3, 4, 2, 5, 6});
  expect_equal(run_line({{"f32[2]", {1, 2}}}, "%1: f32[5] = aten::constant_pad_nd(%0, [2, 1], 7)"),
               {7, 7, 1, 2, 7});
  expect_equal(
      run_line({{"f32[1, 3]", {1, 2, 3}}}, "%1: f32[1, 6] = aten::reflection_pad1d(%0, [2, 1])"),
      {3, 2, 1, 2, 3, 2});
  expect_equal(run_line({{"f32[4]", {1, 2, 3, 4}}, {"f32[2]", {8, 9}}},
                        "%2: f32[4] = aten::slice_scatter(%0, %1, 0, 1, 4, 2)"),
               {1, 8, 3, 9});
}

TEST(Meaning, KeepsSymbols) {
  constexpr std::string_view kSymbols = "symbol s0 = 4\nsymbol s1 = 3\n";
  const InputNumbers x{"f32[s0, 3]", {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}};
  expect_equal(run_line({x}, "%1: f32[3*s0] = aten::view(%0, [3*s0])", kSymbols), x.numbers);
  expect_equal(run_line({x}, "%1: f32[3, s0] = aten::view(%0, [3, s0])", kSymbols), x.numbers);
  expect_equal(
      run_line({x}, "%1: f32[s0-1, 3] = aten::slice_copy.Tensor(%0, 0, 1, none, 1)", kSymbols),
      {3, 4, 5, 6, 7, 8, 9, 10, 11});
  expect_equal(run_line({x}, "%1: f32[s0, 3] = aten::mul.Tensor(%0, s0)", kSymbols),
               {0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44});
  expect_equal(run_line({x, {"f32[s1, 3]", {1, 1, 1, 1, 1, 1, 1, 1, 1}}},
                        "%2: f32[s0+s1, 3] = aten::cat([%1, %0], 0)", kSymbols),
               {1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  expect_equal(run_line({x}, "%1: f32[s0] = aten::sum.dim_IntList(%0, [1], false, none)", kSymbols),
               {3, 12, 21, 30});
  expect_equal(
      run_line({}, "%0: i64[s0] = aten::arange.start_step(s1, s0+s1, 1, none, none, none, none)",
               kSymbols),
      {3, 4, 5, 6});
}

TEST(Meaning, Reduces) {
  const InputNumbers x{"i32[2, 3]", {1, 5, 2, -3, 4, 4}};
  expect_equal(run_line({x}, "%1: i64[2] = aten::sum.dim_IntList(%0, [1], false, none)"), {8, 5});
  expect_equal(run_line({x}, "%1: i64[1, 3] = aten::sum.dim_IntList(%0, [0], true, none)"),
               {-2, 9, 6});
  expect_equal(run_line({x}, "%1: i64[] = aten::sum(%0, none)"), {13});
  expect_equal(run_line({x}, "%1: i32[2] = aten::amax(%0, [1], false)"), {5, 4});
  expect_equal(run_line({x}, "%1: i64[2] = aten::argmax(%0, 1, false)"), {1, 1});
  expect_equal(run_line({x}, "%1: i64[] = aten::argmin(%0, none, false)"), {3});
  expect_equal(run_line({{"f32[2, 2]", {0, 0.5, 0, 0}}}, "%1: b8[2] = aten::any.dim(%0, 1, false)"),
               {1, 0});
  expect_equal(run_line({{"b8[2, 2]", {0, 1, 1, 1}}}, "%1: b8[2] = aten::amin(%0, [1], false)"),
               {0, 1});
}

TEST(Meaning, RefusesWithAReason) {
  EXPECT_EQ(refusal({"f32[2]"}, "%1: f32[2] = aten::no_such_op(%0)"), "no meaning");
  EXPECT_EQ(refusal({"c64[2]"}, "%1: c64[2] = aten::exp(%0)"), "no kernels of c64");
  EXPECT_EQ(refusal({"f32[2] cuda:0", "f32[]"}, "%2: f32[2] cuda:0 = aten::mul.Tensor(%0, %1)"),
            "tensors of several devices");
  EXPECT_EQ(refusal({"f32[2, 0]"}, "%1: f32[0, 2] = aten::view(%0, [0, 2])"), "an empty result");
  EXPECT_EQ(refusal({"f32[2] neg"}, "%1: f32[2] = aten::exp(%0)"), "a tensor with a lazy bit");
  EXPECT_EQ(refusal({"u8[2]"}, "%1: b8[2] = aten::gt.Scalar(%0, -1)"),
            "a number the dtype does not hold");
  EXPECT_EQ(refusal({"f32[2]", "b8[2]"}, "%2: f32[1] = aten::index.Tensor(%0, [%1])"),
            "indexing by a mask depends on its values");
  EXPECT_EQ(refusal({"f32[2]"}, "%1: f32[2] = aten::native_dropout_backward(%0, %0, 1.0) random"),
            "the node has an effect");
  EXPECT_EQ(
      refusal({"f32[s0-2]", "f32[2]"}, "%2: f32[s0] = aten::cat([%0, %1], 0)", "symbol s0 = 4\n"),
      "a part may be empty");
}

}  // namespace
}  // namespace smelt
