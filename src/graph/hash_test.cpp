#include <gtest/gtest.h>

#include "graph/graph.h"

namespace smelt {
namespace {

uint64_t hash_of(const std::string& text) { return Graph::parse(text).hash(); }

constexpr const char* kText = R"(symbol s0 = 4
guard s0 < 9
graph {
  input %0: f32[s0] = argument 0
  %1: f32[s0] = aten::add.Scalar(%0, 0.0, 1)
  %2: f32[s0] = aten::neg(%1)
  return (%2)
}
)";

TEST(Hash, IsStable) {
  EXPECT_EQ(hash_of(kText), hash_of(Graph::parse(kText).str()));
  // The same in every process and on every machine: caches on disk rely on it.
  EXPECT_EQ(hash_of("graph {\n  return ()\n}\n"), 15920699646024481953u);
}

TEST(Hash, IgnoresNamesAndNumbers) {
  EXPECT_EQ(hash_of(kText), hash_of(R"(symbol s0 = 4 "batch"
guard s0 < 9  # model.py:3
graph {
  input %2: f32[s0] = argument 0
  %0: f32[s0] = aten::add.Scalar(%2, 0.0, 1)
  %1: f32[s0] = aten::neg(%0)
  return (%1)
}
)"));
}

TEST(Hash, SeesEveryDifference) {
  const std::pair<const char*, const char*> changes[] = {
      {"= 4", "= 5"},
      {"< 9", "<= 9"},
      {"argument 0", "argument 1"},
      {"argument", "captured"},
      {"0.0, 1", "-0.0, 1"},
      {"0.0, 1", "0, 1"},
      {"0.0, 1", "[0.0, 1]"},
      {"0.0, 1", "[0.0], 1"},
      {"add.Scalar", "add"},
      {"neg(%1)", "neg(%0)"},
      {"neg(%1)", "neg(%1) view"},
      {"(%2)", "(%1)"},
      {"%2: f32", "%2: f64"},
      {"(%2)", "(%2, none)"},
      {"return", "test::x()\n  return"},
      {"%2: f32[s0]", "%2: f32[s0]@1"},
      {"%2: f32[s0]", "%2: f32[s0] cuda"},
      {"%2: f32[s0]", "%2: f32[s0+1]"},
      {"%2: f32[s0]", "%2: f32[s0]{2}"},
      {"%2: f32[s0] =", "%2: f32[s0], _ ="},
  };
  for (const auto& [from, to] : changes) {
    std::string text = kText;
    text.replace(text.find(from), std::string(from).size(), to);
    EXPECT_NE(hash_of(text), hash_of(kText)) << text;
  }
}

}  // namespace
}  // namespace smelt
