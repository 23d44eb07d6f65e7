#include "bridge/machine/run_sizes.h"

#include <gtest/gtest.h>

namespace smelt {
namespace {

const Size s0 = Size::symbol(0);

Program of_one_symbol() {
  Program program;
  program.symbols.add(16);
  return program;
}

TEST(SizesOfRuns, AreMadeOnceForEachChoiceOfSymbols) {
  const Program program = of_one_symbol();
  SizesOfRuns sizes(program);
  const Sizes some = {s0, 2 * s0 + 1, 7}, others = {7, s0};
  const int32_t first = sizes.add(some), second = sizes.add(others);
  EXPECT_EQ(sizes.add(some), first);
  sizes.finish();
  const std::vector<int64_t> few = {4}, many = {100};
  const auto run = sizes.of(few);
  EXPECT_EQ(run->at(first, 3).vec(), (std::vector<int64_t>{4, 9, 7}));
  EXPECT_EQ(run->at(second, 2).vec(), (std::vector<int64_t>{7, 4}));
  EXPECT_EQ(sizes.of(many)->at(first, 3).vec(), (std::vector<int64_t>{100, 201, 7}));
  EXPECT_EQ(sizes.of(few), run);
  for (int64_t i = 2; i < 2000; ++i) sizes.of(std::vector<int64_t>{i});
  EXPECT_NE(sizes.of(few), run);  // not kept for ever
}

TEST(SizesOfRuns, ShareArgumentsThatAreEqual) {
  const Program program = of_one_symbol();
  SizesOfRuns sizes(program);
  int made = 0;
  const auto make = [&](std::span<const int64_t> symbols) {
    ++made;
    return c10::IValue(symbols[0]);
  };
  EXPECT_EQ(sizes.add_argument(Arg(s0), nullptr, make), 0);
  EXPECT_EQ(sizes.add_argument(Arg(2 * s0), nullptr, make), 1);
  EXPECT_EQ(sizes.add_argument(Arg(s0), nullptr, make), 0);
  sizes.finish();
  const std::vector<int64_t> symbols = {5};
  EXPECT_EQ(sizes.of(symbols)->arguments[0].toInt(), 5);
  sizes.of(symbols);
  EXPECT_EQ(made, 2);
}

TEST(SizesOfRuns, SayWhichGuardIsBroken) {
  Program program = of_one_symbol();
  program.symbols.add_guard({modulo(s0, 8), Relation::eq, 0, "model.py:3"});
  SizesOfRuns sizes(program);
  sizes.add({{floor_div(64, s0 - 9)}});  // is not computed then
  sizes.finish();
  const std::vector<int64_t> good = {8}, bad = {9}, least = {1};
  EXPECT_EQ(sizes.of(good)->broken, nullptr);
  ASSERT_NE(sizes.of(bad)->broken, nullptr);
  EXPECT_EQ(sizes.of(bad)->broken->where, "model.py:3");
  EXPECT_NE(sizes.of(least)->broken, nullptr);
}

TEST(SizesOfRuns, PlanTheArenaForTheSizesOfARun) {
  Program program = of_one_symbol();
  program.arena.buffers = {{s0 * 4, 0, 1}, {s0 * 8, 1, 2}};
  SizesOfRuns sizes(program);
  sizes.finish();
  const std::vector<int64_t> few = {16}, many = {1000}, too_many = {100'000};
  EXPECT_EQ(sizes.of(few)->arena.offsets, (std::vector<int64_t>{128, 0}));
  EXPECT_EQ(sizes.of(few)->arena.bytes, 192);
  EXPECT_EQ(sizes.of(many)->arena.offsets, (std::vector<int64_t>{8000, 0}));
  EXPECT_EQ(sizes.of(too_many)->arena.bytes, 0);
}

}  // namespace
}  // namespace smelt
